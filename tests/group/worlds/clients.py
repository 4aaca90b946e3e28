"""Producers and a consumer of a group in memory, and what they saw."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from escrowmq.base.codes import Request, Response
from escrowmq.codec.ids import parse_offset_id
from escrowmq.codec.record import decode_records
from escrowmq.drill.history import AcknowledgedEnd, AcknowledgedSend, Event, ReadMessage
from tests.harness.caller import COMMIT, ROLLBACK, Caller, Half, Pending, half_of_check
from tests.harness.group import GroupWorld, MemberHost

if TYPE_CHECKING:
    from escrowmq.base.command import Command

TOPIC: Final = "orders"
QUEUES: Final = 2
_GROUP: Final = "PG"
_PATIENCE_MS: Final = 3_000
AGAIN: Final = (
    Response.SERVICE_NOT_AVAILABLE, Response.FLUSH_SLAVE_TIMEOUT, Response.FLUSH_DISK_TIMEOUT,
)  # fmt: skip
"""Not done, or done and not safe yet."""


class Journal:
    """What all clients of a world saw."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.attempted: set[str] = set()
        self.verdicts: dict[str, int] = {}
        """What becomes of each transaction, acknowledged or not."""
        self.faults: list[str] = []
        self.forgets = False
        """Whether old messages are deleted: then ended halves, and messages that were not read in
        time, are gone."""

    def is_done(self, reply: Command) -> bool:
        """Whether an END is done, now or long ago."""
        is_gone = self.forgets and "Find prepared transaction message" in (reply.remark or "")
        return reply.code == Response.SUCCESS or is_gone


class Client:
    """One client, which connects to a broker that lets it in; like those of the field it may hold
    on to one that is no longer the master."""

    def __init__(self, world: GroupWorld, name: str, chance: random.Random, seen: Journal) -> None:
        self.world = world
        self.name = name
        self.chance = chance
        self.seen = seen
        self._host: MemberHost | None = None
        self._life = 0
        self._caller: Caller | None = None
        self._waiting: list[tuple[int, Pending, Callable[[Command], None]]] = []

    # -- the connection ----------------------------------------------------------------------

    def _is_connected(self) -> bool:
        host, caller = self._host, self._caller
        return (
            host is not None and caller is not None and caller.closed is None
            and host.life == self._life and host.broker is not None
        )  # fmt: skip

    def _host_ms(self) -> int:
        """What the broker's clock says."""
        return self.world.wall_ms if self._host is None else self._host.wall_ms

    def leave(self) -> None:
        """Give the connection up; what was asked stays unanswered."""
        if self._is_connected() and not self._host_is_frozen():
            assert self._caller is not None
            self._caller.leave()
        self._caller = self._host = None
        self._waiting.clear()

    def _host_is_frozen(self) -> bool:
        return self._host is not None and self._host.is_frozen

    def connected(self) -> bool:
        """Connect, if somebody lets clients in."""
        if self._is_connected():
            return True
        self._waiting.clear()
        self._caller = None
        hosts = [h for h in self.world.hosts.values() if h.is_ready and not h.is_frozen]
        if not hosts:
            return False
        host = self.chance.choice(hosts)
        assert host.broker is not None
        self._host, self._life = host, host.life
        self._caller = host.broker.connect(self.name)
        self._greet(self._caller)
        return True

    def _greet(self, caller: Caller) -> None:
        pass

    def ask(self, ask: Callable[[Caller], Pending], then: Callable[[Command], None]) -> None:
        """Send a request, now or (to a frozen process) into its sockets."""
        host, caller, life = self._host, self._caller, self._life
        assert host is not None
        assert caller is not None

        def arrive() -> None:
            if host.life == life and caller.closed is None:
                pending = ask(caller)
                if caller is self._caller:  # else it was left, and nobody hears the answer
                    self._waiting.append((self.world.now_ms, pending, then))

        host.arrive(arrive)

    def listen(self) -> None:
        """Take the replies that are there."""
        waiting, self._waiting = self._waiting, []
        for asked_ms, pending, then in waiting:
            if pending:
                then(pending.now)
            else:
                self._waiting.append((asked_ms, pending, then))
        if self._waiting and self._waiting[0][0] < self.world.now_ms - _PATIENCE_MS:
            self.leave()

    def step(self) -> None:
        """Time has passed."""
        self.listen()
        if self._host_is_frozen() and self.chance.random() < 0.02:
            self.leave()
        if self.connected():
            self.act()

    def act(self) -> None:
        """Ask for something."""
        raise NotImplementedError


class Sender(Client):
    """Sends plain messages."""

    count = 0

    def act(self) -> None:
        if len(self._waiting) >= 4 or self.chance.random() < 0.7:
            return
        self.count += 1
        key, queue = f"{self.name}-{self.count}", self.chance.randrange(QUEUES)
        self.seen.attempted.add(key)

        def answered(reply: Command) -> None:
            if reply.code == Response.SUCCESS:
                ext = reply.ext or {}
                self.seen.events.append(
                    AcknowledgedSend(
                        TOPIC, key, int(ext["queueId"]), int(ext["queueOffset"]), ext["msgId"]
                    )
                )

        self.ask(lambda c: c.begin_send(TOPIC, key.encode(), queue_id=queue), answered)


class TransactionSender(Client):
    """Sends halves, ends them, and answers checks."""

    def __init__(self, world: GroupWorld, name: str, chance: random.Random, seen: Journal) -> None:
        super().__init__(world, name, chance, seen)
        self._count = 0
        self.open: dict[str, Half] = {}
        """Acknowledged halves whose ends are not."""
        self._is_asked: set[str] = set()
        self.is_finishing = False

    def _greet(self, caller: Caller) -> None:
        self._is_asked.clear()
        caller.heartbeat(producer=_GROUP)

    def act(self) -> None:
        assert self._caller is not None
        if not self._host_is_frozen():
            for check in self._caller.take(Request.CHECK_TRANSACTION_STATE):
                self._end(half_of_check(check), is_from_check=True)
        if not self.is_finishing and len(self._waiting) < 4 and self.chance.random() < 0.2:
            self._begin()
        for key, half in self.open.items():
            if key not in self._is_asked and (self.is_finishing or self.chance.random() < 0.1):
                self._is_asked.add(key)
                self._end(half)

    def _begin(self) -> None:
        self._count += 1
        key, queue = f"{self.name}-{self._count}", self.chance.randrange(QUEUES)
        seen = self.seen
        seen.attempted.add(key)
        seen.verdicts[key] = COMMIT if self.chance.random() < 0.6 else ROLLBACK

        def answered(reply: Command) -> None:
            if reply.code != Response.SUCCESS:
                return
            ext = reply.ext or {}
            seen.events.append(AcknowledgedSend(TOPIC, key, queue, -1, ext["msgId"], key))
            self.open[key] = Half(
                topic=TOPIC,
                group=_GROUP,
                queue_offset=int(ext["queueOffset"]),
                log_offset=parse_offset_id(ext["msgId"])[1],
                unique_key=key,
                escrow_id=ext.get("escrowId", ""),
            )

        self.ask(
            lambda c: c.begin_send(
                TOPIC, key.encode(), queue_id=queue, group=_GROUP, TRAN_MSG="true",
                PGROUP=_GROUP, UNIQ_KEY=key, fields={"escrowWantsId": "true"},
            ),
            answered,
        )  # fmt: skip

    def _end(self, half: Half, *, is_from_check: bool = False) -> None:
        key = half.unique_key
        verdict = self.seen.verdicts[key]

        def answered(reply: Command) -> None:
            self._is_asked.discard(key)
            if self.seen.is_done(reply):
                self.open.pop(key, None)
                self.seen.events.append(
                    AcknowledgedEnd(key, "commit" if verdict == COMMIT else "rollback")
                )
            elif reply.code not in AGAIN and key in self.open:
                self.seen.faults.append(f"END of {key} is refused: {reply.code} {reply.remark}")

        def ask(caller: Caller) -> Pending:
            if half.escrow_id and self.chance.random() < 0.5:
                ext = {"escrowId": half.escrow_id, "commitOrRollback": str(verdict)}
                return caller.begin(Request.END_TRANSACTION, ext)
            return caller.begin_end(half, verdict, is_from_check=is_from_check)

        self.ask(ask, answered)


class Reader(Client):
    """Pulls each queue from its beginning on."""

    def __init__(self, world: GroupWorld, name: str, chance: random.Random, seen: Journal) -> None:
        super().__init__(world, name, chance, seen)
        self._next = dict.fromkeys(range(QUEUES), 0)

    def act(self) -> None:
        if self._waiting:
            return
        queue = self.chance.randrange(QUEUES)
        offset = self._next[queue]

        def answered(reply: Command) -> None:
            if reply.code == Response.SUCCESS:
                for message in decode_records(reply.body):
                    self._read(queue, message.queue_offset, message.body, message.log_offset)
                    self._next[queue] = message.queue_offset + 1
            elif reply.code == Response.PULL_OFFSET_MOVED:
                follows = int((reply.ext or {})["nextBeginOffset"])
                if self.seen.forgets and follows > offset:
                    self._next[queue] = follows
                    return
                self.seen.faults.append(
                    f"queue {queue} was read up to {offset}, and does not go so far any more"
                )

        self.ask(lambda c: c.begin_pull(TOPIC, offset, queue_id=queue), answered)

    def _read(self, queue: int, offset: int, body: bytes, position: int) -> None:
        self.seen.events.append(ReadMessage(TOPIC, queue, offset, body.decode(), position))
