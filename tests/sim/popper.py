"""A consumer that pops: what it does not acknowledge in time comes again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.base.message import Property
from escrowmq.client.core.popping import receipt_of
from escrowmq.codec.pop_receipt import (
    PopReceipt,
    decode_offset_list,
    encode_receipt,
    retry_topic,
)
from escrowmq.codec.record import decode_records
from tests.sim.checker import Checker
from tests.sim.client import SimClient
from tests.sim.network import Address, SimNetwork
from tests.sim.stage import Stage

_POLL_MS = 15_000
_INVISIBLE_MS = 20_000
_POP_COUNT = 8
_ACKED_SHARE = 0.9
_GROUP = "packing"


class SimPopper(SimClient):
    """The one member of a group that pops several topics."""

    def __init__(
        self,
        stage: Stage,
        network: SimNetwork,
        broker: Address,
        *,
        topics: list[str],
        checker: Checker,
        broker_ms: Callable[[], int],
    ) -> None:
        super().__init__(stage, network, broker, name="packing@sim", host=("10.0.3.1", 50_001))
        self._topics = topics
        self._checker = checker
        self._broker_ms = broker_ms

    def groups(self) -> dict[str, object]:
        """See SimClient."""
        return {"producerDataSet": [], "consumerDataSet": []}

    def on_connected(self) -> None:
        """See SimClient."""
        for topic in self._topics:
            self._pop(topic, self.link)

    def _pop(self, topic: str, link: object) -> None:
        if link is not self.link or not self.is_connected:
            return
        ext = {
            "consumerGroup": _GROUP,
            "topic": topic,
            "queueId": "-1",
            "maxMsgNums": str(_POP_COUNT),
            "invisibleTime": str(_INVISIBLE_MS),
            "pollTime": str(_POLL_MS),
            "bornTime": str(self._broker_ms()),  # a client whose clock is late gets nothing
            "initMode": "0",
            "order": "false",
        }

        def heard(reply: Command | None) -> None:
            delay_ms = 1_000
            if reply is not None and reply.code == Response.SUCCESS:
                self._take(topic, reply)
                delay_ms = 100
            self.after(delay_ms, partial(self._pop, topic, link))

        self.call(Request.POP_MESSAGE, ext, heard, timeout_ms=_POLL_MS + 5_000)

    def _take(self, topic: str, reply: Command) -> None:
        ext = reply.ext or {}
        offsets = decode_offset_list(ext["msgOffsetInfo"])
        for message in decode_records(reply.body):
            is_acked = self.stage.is_calm or self.stage.chance.random() <= _ACKED_SHARE
            self._checker.popped(message, is_acked=is_acked)
            self.stage.done["messages popped"] += 1
            receipt = receipt_of(message, ext, broker_name="sim-broker")
            if Property.POP_CK not in message.properties:
                key = (receipt.kind, str(receipt.queue_id))
                assert receipt.queue_offset in offsets[key], (message, offsets)
            if is_acked:
                self._ack(topic, receipt)
            else:
                self.stage.fault("popped and not acknowledged")

    def _ack(self, topic: str, receipt: PopReceipt) -> None:
        ext = {
            "consumerGroup": _GROUP,
            "topic": retry_topic(topic, _GROUP, receipt.kind),
            "queueId": str(receipt.queue_id),
            "extraInfo": encode_receipt(receipt),
            "offset": str(receipt.queue_offset),
        }
        self.cast(Request.ACK_MESSAGE, ext)
