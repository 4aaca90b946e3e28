"""What is refused under pressure: new transactions first, then plain messages, and never an end."""

from __future__ import annotations

from escrowmq.base.answer import Refusal
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Response
from escrowmq.base.message import Property
from escrowmq.broker.present_input import Moment


class Shedding:
    """Judges sends by how long they had to wait to be read."""

    def __init__(self, settings: BrokerSettings, moment: Moment) -> None:
        self._settings = settings
        self._moment = moment
        self.count = 0
        """Halves and sends that were refused."""

    @property
    def is_late(self) -> bool:
        """Whether the present input waited longer than a new transaction may."""
        return self._moment.waited_ms > self._settings.half_wait_max_ms

    def refusal(self, properties: str | None) -> Refusal | None:
        """Why a message with such properties is not taken now; None when it is."""
        if not self.is_late:
            return None
        settings, waited_ms = self._settings, self._moment.waited_ms
        is_half = f"{Property.TRAN_MSG}\x01" in (properties or "")
        if not settings.sheds_load or not (is_half or waited_ms > settings.send_wait_max_ms):
            return None
        self.count += 1
        remark = (
            "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: "
            f"{waited_ms}ms, size of queue: 0"
        )
        return Refusal(Response.SYSTEM_BUSY, remark)
