"""A consumer that pops, and its messages: each comes until it is acknowledged."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from escrowmq.base.codes import Request, Response
from escrowmq.client.core.popping import receipt_of
from escrowmq.codec.pop_receipt import PopReceipt, encode_receipt, retry_topic
from escrowmq.codec.record import decode_records
from tests.group.worlds.clients import Client, Journal
from tests.harness.caller import Caller
from tests.harness.group import GroupWorld

if TYPE_CHECKING:
    from escrowmq.base.command import Command

TOPIC: Final = "popped"
_GROUP: Final = "popping"
_INVISIBLE_MS: Final = 3_000


class Popper(Client):
    """Sends to a topic, and pops it."""

    def __init__(self, world: GroupWorld, name: str, chance: random.Random, seen: Journal) -> None:
        super().__init__(world, name, chance, seen)
        self._count = 0
        self._acknowledged: set[str] = set()
        self._given: set[str] = set()
        """Messages whose acknowledgement was asked for: they may never come again."""
        self._is_popping = False
        self.is_finishing = False

    def _greet(self, caller: Caller) -> None:
        del caller
        self._is_popping = False

    def act(self) -> None:
        chance = self.chance.random()
        if not self.is_finishing and len(self._waiting) < 4 and chance < 0.2:
            self._send()
        elif not self._is_popping and (self.is_finishing or chance < 0.4):
            self._pop()

    def expect_deletions(self) -> None:
        """What is not consumed by now may be deleted for its age."""
        self._given |= self._acknowledged

    def open(self) -> set[str]:
        """Messages whose acknowledgement is still to come."""
        return self._acknowledged - self._given

    def _send(self) -> None:
        self._count += 1
        key = f"{self.name}-{self._count}"

        def answered(reply: Command) -> None:
            if reply.code == Response.SUCCESS:
                self._acknowledged.add(key)

        self.ask(lambda c: c.begin_send(TOPIC, key.encode(), UNIQ_KEY=key), answered)

    def _pop(self) -> None:
        self._is_popping = True
        ext = {
            "consumerGroup": _GROUP, "topic": TOPIC, "queueId": "-1", "maxMsgNums": "8",
            "invisibleTime": str(_INVISIBLE_MS), "pollTime": "0",
            "bornTime": str(self._host_ms()), "initMode": "0", "order": "false",
        }  # fmt: skip

        def answered(reply: Command) -> None:
            self._is_popping = False
            if reply.code == Response.SUCCESS:
                self._take(reply)

        self.ask(lambda c: c.begin(Request.POP_MESSAGE, ext), answered)

    def _take(self, reply: Command) -> None:
        ext = reply.ext or {}
        for message in decode_records(reply.body):
            key = message.body.decode()
            if self.is_finishing or self.chance.random() < 0.7:
                self._acknowledge(key, receipt_of(message, ext, broker_name="b"))

    def _acknowledge(self, key: str, receipt: PopReceipt) -> None:
        self._given.add(key)
        ext = {
            "consumerGroup": _GROUP, "topic": retry_topic(TOPIC, _GROUP, receipt.kind),
            "queueId": str(receipt.queue_id), "extraInfo": encode_receipt(receipt),
            "offset": str(receipt.queue_offset),
        }  # fmt: skip

        self.ask(lambda c: c.begin(Request.ACK_MESSAGE, ext), lambda _: None)
