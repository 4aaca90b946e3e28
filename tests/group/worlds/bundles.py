"""A producer of transactions of several messages: all of one become visible, or none."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from escrowmq.base.codes import Request, Response
from escrowmq.base.own_properties import MESSAGES, TRANSACTION
from escrowmq.codec.ids import parse_offset_id
from escrowmq.codec.properties import encode_properties
from escrowmq.drill.history import AcknowledgedEnd, AcknowledgedSend
from tests.group.worlds.clients import AGAIN, QUEUES, TOPIC, Client, Journal
from tests.harness.caller import COMMIT, ROLLBACK, Caller, Half, half_of_check
from tests.harness.group import GroupWorld

if TYPE_CHECKING:
    from escrowmq.base.command import Command

_GROUP: Final = "BG"
_HALVES_MAX: Final = 4


class BundleSender(Client):
    """Stores the halves of one transaction after another, ends them, and answers checks."""

    def __init__(self, world: GroupWorld, name: str, chance: random.Random, seen: Journal) -> None:
        super().__init__(world, name, chance, seen)
        self._count = 0
        self._built: str = ""
        """The transaction whose halves are being stored."""
        self._halves: list[Half] = []
        self._wanted = 0
        self.open: dict[str, list[Half]] = {}
        """Transactions whose halves are stored, and whose ends are not acknowledged."""
        self._is_asked: set[str] = set()
        self.is_finishing = False

    def _greet(self, caller: Caller) -> None:
        self._is_asked.clear()
        self._give_up()
        caller.heartbeat(producer=_GROUP)

    def _give_up(self) -> None:
        """A half was not stored for sure: nothing of its transaction may be seen."""
        if self._built:
            self.seen.verdicts[self._built] = ROLLBACK
            self._built = ""

    def act(self) -> None:
        assert self._caller is not None
        if not self._host_is_frozen():
            for check in self._caller.take(Request.CHECK_TRANSACTION_STATE):
                self._answer_check(half_of_check(check))
        if not self._built and not self.is_finishing and self.chance.random() < 0.1:
            self._begin()
        for name, halves in self.open.items():
            if name not in self._is_asked and (self.is_finishing or self.chance.random() < 0.1):
                self._is_asked.add(name)
                self._end(name, self.chance.choice(halves), len(halves))

    def _begin(self) -> None:
        self._count += 1
        self._built, self._halves = f"{self.name}-{self._count}", []
        self._wanted = self.chance.randint(1, _HALVES_MAX)
        self.seen.verdicts[self._built] = COMMIT if self.chance.random() < 0.6 else ROLLBACK
        self._send_half()

    def _send_half(self) -> None:
        name, queue = self._built, self.chance.randrange(QUEUES)
        key = f"{name}/{len(self._halves)}"
        self.seen.attempted.add(key)

        def answered(reply: Command) -> None:
            if self._built != name:
                return
            if reply.code != Response.SUCCESS:
                self._give_up()
                return
            ext = reply.ext or {}
            self.seen.events.append(AcknowledgedSend(TOPIC, key, queue, -1, ext["msgId"], name))
            number, place = int(ext["queueOffset"]), parse_offset_id(ext["msgId"])[1]
            self._halves.append(Half(TOPIC, _GROUP, number, place, key))
            if len(self._halves) == self._wanted:
                self.open[name], self._built = self._halves, ""
            else:
                self._send_half()

        properties = {"TRAN_MSG": "true", "PGROUP": _GROUP, "UNIQ_KEY": key, TRANSACTION: name}
        fields = {"i": encode_properties(properties).decode()}
        self.ask(
            lambda c: c.begin_send(
                TOPIC, key.encode(), queue_id=queue, group=_GROUP, fields=fields
            ),
            answered,
        )

    def _answer_check(self, half: Half) -> None:
        name = half.unique_key.rpartition("/")[0]
        if name != self._built:
            self._end(name, half, 0)

    def _end(self, name: str, half: Half, count: int) -> None:
        verdict = self.seen.verdicts[name]
        fields = {MESSAGES: str(count)} if count and self.chance.random() < 0.5 else {}

        def answered(reply: Command) -> None:
            self._is_asked.discard(name)
            if self.seen.is_done(reply):
                self.open.pop(name, None)
                self.seen.events.append(
                    AcknowledgedEnd(name, "commit" if verdict == COMMIT else "rollback")
                )
            elif reply.code not in AGAIN and name in self.open:
                self.seen.faults.append(f"END of {name} is refused: {reply.code} {reply.remark}")

        self.ask(
            lambda c: c.begin_end(half, verdict, is_from_check=not count, fields=fields), answered
        )
