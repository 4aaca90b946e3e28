"""Writers that send and end transactions as fast as they can; a ledger of what they were told."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field

from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.codec.ids import parse_offset_id

from .link import Link, send_request

TOPIC = "crash"
QUEUES = 4
GROUP = "crash-producers"
COMMIT, ROLLBACK = 8, 12
_WINDOW = 8


@dataclass
class Half:
    """A half message that was acknowledged, and what its producer wants of it."""

    body: bytes
    verdict: int
    queue_offset: int
    log_offset: int
    is_end_acknowledged: bool = False

    def end_fields(self, *, is_from_check: bool = False) -> dict[str, str]:
        return {
            "producerGroup": GROUP,
            "tranStateTableOffset": str(self.queue_offset),
            "commitLogOffset": str(self.log_offset),
            "commitOrRollback": str(self.verdict),
            "fromTransactionCheck": "true" if is_from_check else "false",
        }


@dataclass
class Ledger:
    """What was tried and what was acknowledged."""

    sent: set[bytes] = field(default_factory=set)
    acknowledged: set[bytes] = field(default_factory=set)
    verdicts: dict[bytes, int] = field(default_factory=dict)
    halves: dict[bytes, Half] = field(default_factory=dict)
    news: threading.Condition = field(default_factory=threading.Condition)
    answers_count: int = 0

    def wait_for(self, count: int, within_s: float) -> None:
        """Until so many more answers have come."""
        with self.news:
            goal = self.answers_count + count
            assert self.news.wait_for(lambda: self.answers_count >= goal, within_s), "no answers"


class Writer(threading.Thread):
    """One producer; ends when its broker is gone."""

    def __init__(self, ledger: Ledger, address: str, name: str, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self._ledger = ledger
        self._address = address
        self._chance = random.Random(seed)
        self._serial = 0
        self._open: list[Half] = []
        self.fault: str | None = None

    def run(self) -> None:
        link = Link(self._address)
        try:
            while self.fault is None:
                self._round(link)
        except OSError:
            pass  # the broker was killed
        finally:
            link.close()

    def _round(self, link: Link) -> None:
        """Several requests in one write; what became of each is noted as its reply says."""
        commands: list[Command] = []
        bodies: list[bytes] = []
        for _ in range(self._chance.randint(1, _WINDOW)):
            self._serial += 1
            size = self._chance.choice((0, 10, 300, 3_000))
            body = b"%s-%d " % (self.name.encode(), self._serial) + bytes(size)
            bodies.append(body)
            commands.append(self._send(body))
        ends = [half for half in self._open if self._chance.random() < 0.7]
        self._open = []
        commands += [Command(code=Request.END_TRANSACTION, ext=half.end_fields()) for half in ends]
        replies = link.ask_all(commands)
        with self._ledger.news:
            for body, reply in zip(bodies, replies[: len(bodies)], strict=True):
                self._note_sent(body, reply)
            for half, reply in zip(ends, replies[len(bodies) :], strict=True):
                self._note_ended(half, reply)
            self._ledger.answers_count += len(replies)
            self._ledger.news.notify_all()

    def _send(self, body: bytes) -> Command:
        chance, ledger = self._chance, self._ledger
        properties = {"UNIQ_KEY": body.split()[0].decode()}
        with ledger.news:
            if chance.random() < 0.5:
                ledger.sent.add(body)
            else:
                ledger.verdicts[body] = chance.choice((COMMIT, COMMIT, ROLLBACK))
                properties |= {"TRAN_MSG": "true", "PGROUP": GROUP}
        return send_request(TOPIC, chance.randrange(QUEUES), body, GROUP, properties)

    def _note_sent(self, body: bytes, reply: Command) -> None:
        ledger = self._ledger
        if reply.code:
            self.fault = f"send: {reply.code} {reply.remark}"
            return
        if body in ledger.sent:
            ledger.acknowledged.add(body)
            return
        ext = reply.ext or {}
        half = Half(
            body=body,
            verdict=ledger.verdicts[body],
            queue_offset=int(ext["queueOffset"]),
            log_offset=parse_offset_id(ext["msgId"])[1],
        )
        ledger.halves[body] = half
        self._open.append(half)

    def _note_ended(self, half: Half, reply: Command) -> None:
        if reply.code:
            self.fault = f"end: {reply.code} {reply.remark}"
        half.is_end_acknowledged = True
