"""Load shedding: refuses new transactions first, then plain messages, but never an END."""

from __future__ import annotations

from escrowmq.base.answer import Refusal
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.broker.input_time import InputTime
from escrowmq.broker.rules import is_plain
from escrowmq.broker.sends.send_rules import INPUT_RULES, LATE, ArrivalFacts


class LoadShedding:
    """Refuses sends that waited too long to be read."""

    def __init__(self, settings: BrokerSettings, moment: InputTime) -> None:
        self._settings = settings
        self._moment = moment
        self.count = 0
        """The number of refused halves and sends."""

    def accepts_all(self, now_ms: int) -> bool:
        """Whether no rule about when sends are accepted concerns this input, so that none of its
        sends needs a check."""
        return is_plain(INPUT_RULES, ArrivalFacts(self._settings, self._moment.waited_ms, now_ms))

    def late_refusal(self, properties: str | None) -> Refusal | None:
        """Return why a message with such properties is refused, because the input has waited too
        long; None if it is accepted."""
        waited_ms = self._moment.waited_ms
        if not waited_ms:
            return None
        about = ArrivalFacts(self._settings, waited_ms, self._moment.now_ms, properties or "")
        refusal = LATE.refusal(about)
        self.count += refusal is not None
        return refusal
