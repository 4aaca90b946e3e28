"""Holds a broker to its promises: invariants (a) to (h) of the transactions.

    (a) an acknowledged commit is readable exactly once, at one offset
    (b) what was rolled back is never readable
    (c) what nobody ended is pending
    (d) no final message without its half, no end that nobody asked for
    (e) every half reaches one end once somebody who knows it can be reached
    (f) offsets are contiguous, one value each
    (g) an acknowledged outcome never changes
    (h) progress never passes an offset that was not written

An outcome that was acknowledged holds after a killed process always, after lost power with
SYNC_FLUSH always, else as far as the log had become durable."""

from __future__ import annotations

import random
from collections.abc import Callable

from escrowmq.base.message import Property, StoredMessage, Topic
from escrowmq.broker.core import OFFSETS_FILE, BrokerCore
from escrowmq.codec import fastjson
from escrowmq.delivery.subscriptions import TRANSACTION_GROUP
from escrowmq.testing.sim.disk import Loss, SimDisk
from escrowmq.testing.sim.ledger import COMMIT, ROLLBACK, Ledger
from escrowmq.testing.sim.plan import Plan
from escrowmq.testing.sim.reading import Queue, Reading
from escrowmq.testing.sim.stage import Stage, Violation
from escrowmq.txn.engine import Engine
from escrowmq.txn.op import decode_op

_ALL = 1 << 62
MakeCore = Callable[[SimDisk, Loss], BrokerCore]
"""Makes a broker over a disk, after this kind of loss."""

_SAID_FOR = {"c": COMMIT, "r": ROLLBACK}


def engine_of(core: BrokerCore) -> Engine:
    """The transactions of a broker."""
    return core._ends.engine  # noqa: SLF001 - a judge may look behind the curtain


class Checker:
    """The judge of one world."""

    def __init__(self, stage: Stage, plan: Plan, ledger: Ledger) -> None:
        self._stage = stage
        self._plan = plan
        self._ledger = ledger
        self.reading = Reading(plan.topics)
        self._values: dict[tuple[Queue, int], tuple[str, int]] = {}
        self.got: dict[str, set[tuple[Queue, int]]] = {}
        self.has_lost = False
        """Whether lost power took promises that were made in memory only."""

    # -- what consumers see ----------------------------------------------------------------------

    def consumed(self, group: str, message: StoredMessage) -> None:
        """A consumer was given a message: always the same one at one place (f)."""
        place = ((message.topic, message.queue_id), message.queue_offset)
        value = (message.properties.get(Property.UNIQ_KEY, ""), message.prepared_log_offset)
        if self._values.setdefault(place, value) != value:
            raise Violation(f"{place} was {self._values[place]}, and is {value} now")
        self.got.setdefault(group, set()).add(place)

    def moved(self, queue: Queue, offset: int) -> None:
        """A consumer was told that an offset which it got from the broker is none."""
        if not self.has_lost:
            raise Violation(f"{queue}: offset {offset} was given out, and is none now")

    # -- the broker as it runs -------------------------------------------------------------------

    def audit(self, core: BrokerCore) -> None:
        """Look at everything that a running broker has."""
        self._stage.done["audits"] += 1
        self.reading.advance(core.broker.store)
        self._check_ends(self.reading)
        # On a full disk the queues wait for room; what was promised is in the log.
        if core.broker.store.dispatcher.stalled is None:
            self._check_promises(self.reading)
            if not self.has_lost:
                self.check_progress(core)
        engine = engine_of(core)
        if engine.quarantine:
            raise Violation(f"halves are set aside on a sound disk: {engine.quarantine}")
        early = set(engine.pending) & self.reading.outcomes.keys()
        if early:
            raise Violation(f"halves {sorted(early)} are pending, and op records name them")

    def _check_ends(self, reading: Reading) -> None:
        """(d): every end was asked for; (b): no final of what was rolled back or given up."""
        halves = dict(reading.halves())
        for number, letter in reading.outcomes.items():
            ident = halves.get(number)
            if ident is None:
                raise Violation(f"an op record names half {number}, which is not there")
            if (ident in reading.finals) != (letter == "c"):
                raise Violation(f"{ident} is {letter!r}, its final {ident in reading.finals}")
            if letter == "x":
                self._check_given_up(reading, ident)
            elif _SAID_FOR[letter] not in self._ledger.said.get(ident, ()):
                raise Violation(f"{ident} was ended as {letter!r}, which nobody asked for")
        for ident in reading.finals:
            if COMMIT not in self._ledger.said.get(ident, ()):
                raise Violation(f"{ident} is readable, and nobody committed it")

    def _check_given_up(self, reading: Reading, ident: tuple[str, int]) -> None:
        asked = self._ledger.checks[ident]
        if asked < self._plan.checks_max:
            raise Violation(f"{ident} was given up after {asked} checks that reached somebody")
        if ident[0] not in reading.given_up:
            raise Violation(f"{ident} was given up and is not kept anywhere")

    def _check_promises(self, reading: Reading) -> None:
        """(a), (b), (g): what was acknowledged is so."""
        letters = {"committed": "c", "rolled_back": "r", "expired": "x"}
        there = {ident: number for number, ident in reading.halves()}
        for ident, number in self._ledger.halves.items():
            if there.get(ident) != number:
                raise Violation(f"half {ident} was acknowledged at {number}, and is not there")
        for ident, outcome in self._ledger.told.items():
            found = there.get(ident)
            if found is None:
                raise Violation(f"{ident} was {outcome}, and its half is gone")
            letter = reading.outcomes.get(found)
            if outcome == "committed" and ident not in reading.finals:
                raise Violation(f"commit of {ident} was acknowledged, and it is not readable")
            if letter is None and outcome != "committed":
                raise Violation(f"{ident} was acknowledged as {outcome}, and no op record says so")
            if letter is not None and letter != letters[outcome]:
                raise Violation(f"{ident} was acknowledged as {outcome}, and is {letter!r}")

    def check_progress(self, core: BrokerCore) -> None:
        """(h): nobody has read what was never written."""
        broker = core.broker
        for queue in self.reading.queues:
            end = broker.store.bounds(*queue)[1]
            for group in [*broker.offsets.groups_of(queue[0])]:
                offset = broker.offsets.get(group, *queue)
                if offset > end:
                    raise Violation(f"{group} has read {queue} up to {offset}, it ends at {end}")

    # -- after a start ---------------------------------------------------------------------------

    def opened(self, core: BrokerCore, *, loss: Loss, durable_offset: int) -> None:
        """A broker was opened on what a crash has left: it becomes the one that is watched."""
        found = self.judge(core, loss=loss, durable_offset=durable_offset)
        if not self._keeps_all(loss):
            self._forget(found)
        self._check_ends(found)
        self._check_promises(found)
        self.reading = found
        self.check_progress(core)

    def _keeps_all(self, loss: Loss) -> bool:
        return loss is Loss.NOTHING or self._plan.is_sync_flush

    def judge(self, core: BrokerCore, *, loss: Loss, durable_offset: int) -> Reading:
        """What a broker has made of the files after a crash: all that was durable, and every
        half either ended or pending."""
        survives = _ALL if loss is Loss.NOTHING else durable_offset
        found = Reading(self._plan.topics, self.reading, known_end=survives)
        found.advance(core.broker.store)
        self.reading.check_survivors(found, durable_offset=survives)
        engine = engine_of(core)
        pending, expected = set(engine.pending), found.open_halves()
        if engine.quarantine:
            raise Violation(f"halves are set aside on a sound disk: {engine.quarantine}")
        if expected - pending:
            raise Violation(f"halves {_some(expected - pending)} have no end and are not pending")
        if pending - expected:
            raise Violation(f"halves {_some(pending - expected)} are pending, and were ended")
        return found

    def _forget(self, found: Reading) -> None:
        """Promises in memory went with the power; what is left holds from now on."""
        self.has_lost = True
        halves = {ident: number for number, ident in found.halves()}
        ledger = self._ledger
        for ident in [i for i, number in ledger.halves.items() if halves.get(i) != number]:
            del ledger.halves[ident]
        for ident in list(ledger.told):
            number = halves.get(ident, -1)
            if number not in found.outcomes and ident not in found.finals:
                ledger.forget(ident)
        ends = {queue: len(seen) for queue, seen in found.queues.items()}
        for place in [p for p in self._values if p[1] >= ends[p[0]]]:
            del self._values[place]
            for got in self.got.values():
                got.discard(place)

    # -- what if -----------------------------------------------------------------------------

    def fork(self, core: BrokerCore, disk: SimDisk, make: MakeCore, loss: Loss) -> None:
        """Were the broker to die at this moment: what would be found?"""
        stage = self._stage
        stage.done[f"forks: {loss.name}"] += 1
        copy = disk.fork()
        copy.crash(random.Random(stage.chance.getrandbits(32)), loss)
        offsets = copy.small.get(OFFSETS_FILE)
        again = make(copy, loss)
        again.open(stage.clock.now_ms())
        stage.note("fork: %s", loss.name)
        found = self.judge(again, loss=loss, durable_offset=core.broker.store.durable_offset)
        if loss is Loss.NOTHING:
            live, fresh = set(engine_of(core).pending), set(engine_of(again).pending)
            if live != fresh:
                raise Violation(f"pending in memory {_some(live - fresh)} differ from the files' "
                                f"{_some(fresh - live)}")  # fmt: skip
        if self._keeps_all(loss):
            self._check_promises(found)
            self._check_ends(found)
        self._check_peer_view(found, engine_of(again), offsets)

    def _check_peer_view(self, found: Reading, engine: Engine, offsets: bytes | None) -> None:
        """A reader with RocketMQ's rules asks about every pending half, and of the others only
        about those whose op record was not written yet."""
        half_start, op_start = _progress(offsets)
        named = {
            half_offset
            for item in found.queues[Topic.OP, 0][op_start:]
            for half_offset, _ in decode_op(item.message)
        }
        count = len(found.queues[Topic.HALF, 0])
        asked = {number for number in range(half_start, count) if number not in named}
        pending = set(engine.pending)
        if pending - asked:
            raise Violation(f"the peer would never ask about halves {_some(pending - asked)}: its "
                            f"progress is {half_start} and {op_start}")  # fmt: skip
        ended = {number for number in asked - pending if found.outcomes.get(number)}
        if ended:
            raise Violation(f"the peer would ask again about halves {_some(ended)}: its progress "
                            f"is {half_start} and {op_start}")  # fmt: skip

    # -- at the end --------------------------------------------------------------------------

    def finish(self, core: BrokerCore, *, lost_group: str) -> None:
        """(e): whoever can be reached was asked, and all is settled; everything was delivered."""
        self.audit(core)
        engine = engine_of(core)
        rows = {number: engine.pending.row(number) for number in engine.pending}
        left = {number: row for number, row in rows.items() if row.group != lost_group}
        if left:
            raise Violation(f"pending at the end, with producers there that know: {left}")
        self._count_hidden()
        if not self.has_lost:
            for group, got in self.got.items():
                for queue, seen in self.reading.queues.items():
                    if queue[0].startswith("orders"):
                        missing = {n for n in range(len(seen)) if (queue, n) not in got}
                        if missing:
                            raise Violation(f"{group} never got {queue} {_some(missing)}")

    def _count_hidden(self) -> None:
        """Ends that were answered OK after a restart, although the outcome is the other one."""
        for ident, verdict in self._ledger.settled:
            number = self.reading.half_at.get(ident[1], -1)
            letter = self.reading.outcomes.get(number, "")
            if verdict != _SAID_FOR.get(letter, verdict):
                self._stage.done["ends answered: OK, and it is the other outcome"] += 1


def _some(numbers: set[int]) -> list[int]:
    return sorted(numbers)[:10]


def _progress(offsets: bytes | None) -> tuple[int, int]:
    if offsets is None:
        return 0, 0
    table = fastjson.decode(offsets)["offsetTable"]
    half = table.get(f"{Topic.HALF}@{TRANSACTION_GROUP}", {}).get("0", 0)
    op = table.get(f"{Topic.OP}@{TRANSACTION_GROUP}", {}).get("0", 0)
    return int(half), int(op)
