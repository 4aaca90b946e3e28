"""A pop consumer as the clients' own code does it: receipts out of the answer's lists."""

from __future__ import annotations

import base64
import json
from typing import NamedTuple

from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.base.message import Property
from escrowmq.codec.pop_receipt import (
    PopReceipt,
    decode_offset_list,
    decode_receipt,
    encode_receipt,
    retry_kind,
    retry_topic,
)
from escrowmq.codec.record import decode_records
from tests.unit.broker.world import World, ext


class Got(NamedTuple):
    body: str
    receipt: PopReceipt
    reconsume_times: int
    topic: str
    first_pop_ms: str | None

    @property
    def offset(self) -> int:
        return self.receipt.queue_offset


class PopConsumer:
    def __init__(
        self,
        world: World,
        *,
        group: str = "G",
        topic: str = "T",
        peer: int = 1,
        invisible_ms: int = 10_000,
        is_order: bool = False,
    ) -> None:
        self.world = world
        self.group = group
        self.topic = topic
        self.peer = peer
        self.invisible_ms = invisible_ms
        self.is_order = is_order

    def fields(self, **more: object) -> dict[str, object]:
        return {
            "consumerGroup": self.group,
            "topic": self.topic,
            "queueId": -1,
            "maxMsgNums": 32,
            "invisibleTime": self.invisible_ms,
            "pollTime": 0,
            "bornTime": self.world.now_ms,
            "initMode": 0,
            "order": self.is_order,
            **more,
        }

    def ask(self, **more: object) -> Command:
        return self.world.ask(Request.POP_MESSAGE, self.fields(**more), peer=self.peer)

    def wait(self, poll_ms: int = 15_000, **more: object) -> None:
        fields = self.fields(pollTime=poll_ms, **more)
        self.world.tell(Request.POP_MESSAGE, fields, peer=self.peer)

    def pop(self, **more: object) -> list[Got]:
        return self.decode(self.ask(**more))

    def decode(self, reply: Command) -> list[Got]:
        assert reply.code in (0, 210), reply
        fields = ext(reply)
        starts = decode_offset_list(fields["startOffsetInfo"])
        offsets = decode_offset_list(fields["msgOffsetInfo"])
        counts = decode_offset_list(fields.get("orderCountInfo", ""))
        found = []
        taken: dict[tuple[int, str], int] = {}
        for message in decode_records(reply.body):
            text = message.properties.get(Property.POP_CK)
            key = (retry_kind(message.topic), str(message.queue_id))
            if text is not None:
                receipt = decode_receipt(text)
                key = (receipt.kind, key[1])
            index = taken.get(key, 0)
            taken[key] = index + 1
            if text is None:
                receipt = PopReceipt(
                    start_offset=starts[key][0],
                    pop_ms=int(fields["popTime"]),
                    invisible_ms=int(fields["invisibleTime"]),
                    revive_queue=int(fields["reviveQid"]),
                    kind=key[0],
                    broker_name="broker-a",
                    queue_id=message.queue_id,
                    queue_offset=offsets[key][index],
                )
            assert receipt.queue_offset == message.queue_offset == offsets[key][index]
            times = message.reconsume_times
            own = (key[0], f"qo{message.queue_id}%{message.queue_offset}")
            if own in counts:
                times = counts[own][0]
            first = message.properties.get(Property.FIRST_POP_TIME)
            found.append(Got(message.body.decode(), receipt, times, message.topic, first))
        assert taken == {key: len(values) for key, values in offsets.items()}
        return found

    def ack_fields(self, got: Got, **more: object) -> dict[str, object]:
        receipt = got.receipt
        return {
            "consumerGroup": self.group,
            "topic": retry_topic(self.topic, self.group, receipt.kind),
            "queueId": receipt.queue_id,
            "extraInfo": encode_receipt(receipt),
            "offset": receipt.queue_offset,
            **more,
        }

    def ack(self, *gots: Got) -> None:
        """Acks, all in one input."""
        world = self.world
        frames = [world.frame(Request.ACK_MESSAGE, self.ack_fields(got)) for got in gots]
        world.feed(b"".join(frames), self.peer)
        assert [reply.code for reply in world.take_replies(self.peer)] == [0] * len(gots)

    def ack_batch(self, gots: list[Got]) -> Command:
        batches: dict[tuple[int, int, int], int] = {}
        for got in gots:
            r = got.receipt
            key = (r.kind, r.queue_id, r.start_offset)
            batches[key] = batches.get(key, 0) | 1 << r.queue_offset - r.start_offset
        r = gots[0].receipt
        acks = [
            {
                "b": base64.b64encode(bits.to_bytes(8, "little").rstrip(b"\0")).decode(),
                "c": self.group,
                "it": r.invisible_ms,
                "pt": r.pop_ms,
                "q": queue,
                "r": str(kind),
                "rq": r.revive_queue,
                "so": start,
                "t": self.topic,
            }
            for (kind, queue, start), bits in batches.items()
        ]
        body = json.dumps({"acks": acks, "brokerName": "broker-a"}).encode()
        return self.world.ask(Request.BATCH_ACK_MESSAGE, body=body, peer=self.peer)

    def change(self, got: Got, invisible_ms: int) -> Got:
        reply = self.world.ask(
            Request.CHANGE_MESSAGE_INVISIBLETIME,
            self.ack_fields(got, invisibleTime=invisible_ms),
            peer=self.peer,
        )
        assert reply.code == 0, reply
        fields = ext(reply)
        receipt = PopReceipt(
            start_offset=got.receipt.queue_offset,
            pop_ms=int(fields["popTime"]),
            invisible_ms=int(fields["invisibleTime"]),
            revive_queue=int(fields["reviveQid"]),
            kind=got.receipt.kind,
            broker_name="broker-a",
            queue_id=got.receipt.queue_id,
            queue_offset=got.receipt.queue_offset,
        )
        return got._replace(receipt=receipt)
