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
SYNC_FLUSH always, else as far as the log had become durable. A half that is older than
fileReservedTime is given up, asked about or not, and may go with its segment; nothing else does."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from escrowmq.base.message import Property, StoredMessage, Topic
from escrowmq.broker.core import BrokerCore
from escrowmq.broker.upkeep.start_checks import OFFSETS_FILE
from escrowmq.delivery.groups import TRANSACTION_GROUP
from escrowmq.testing.disk import CrashLoss, SimDisk
from escrowmq.txn.engine import TransactionEngine
from escrowmq.txn.op_records import decode_op
from escrowmq.txn.state import State
from tests.sim.clock import WallClock
from tests.sim.ledger import COMMIT, ROLLBACK, Ident, Ledger
from tests.sim.plan import Plan
from tests.sim.reading import (
    Queue,
    Reading,
    Seen,
    checks_before,
    first_stored_ms,
    progress_of,
    scope_of,
)
from tests.sim.stage import Stage, Violation
from tests.sim.steps import Steps
from tests.sim.tally import Tally
from tests.sim.tenant import SimTenant

_ALL = 1 << 62
_HOUR_MS = 3_600_000
_GIVEN_UP_WITHIN_MS = 120_000
MakeCore = Callable[[SimDisk, CrashLoss], BrokerCore]
_SAID_FOR = {"c": COMMIT, "r": ROLLBACK}
_LETTERS = {"committed": "c", "rolled_back": "r", "expired": "x"}


def engine_of(core: BrokerCore) -> TransactionEngine:
    """The transactions of a broker."""
    return core.transactions.engine


class Checker:
    """The judge of one world. `wall` is the clock of the broker's machine."""

    def __init__(
        self, stage: Stage, plan: Plan, ledger: Ledger, wall: WallClock, tenant: SimTenant
    ) -> None:
        self._stage = stage
        self._plan = plan
        self._ledger = ledger
        self._tenant = tenant
        self._wall = wall
        self._broker_ms = wall.now_ms
        self._age_max_ms = plan.habits.reserved_hours * _HOUR_MS
        self.reading = Reading(plan.topics)
        self.steps = Steps(stage, ledger, plan.topics)
        self.tally = Tally(stage, ledger, plan.checks_max)
        self._values: dict[tuple[Queue, int], tuple[str, int]] = {}
        self.got: dict[str, set[tuple[Queue, int]]] = {}
        self.losses_count = 0
        """How often lost power took promises that were made in memory only."""
        self._dispatched = -1
        self._visible: set[str] = set()
        self._popped: set[str] = set()

    @property
    def has_lost(self) -> bool:
        """Whether lost power took promises."""
        return self.losses_count > 0

    # -- what consumers see ----------------------------------------------------------------------

    def consumed(self, group: str, message: StoredMessage) -> None:
        """A consumer was given a message: always the same one at one place (f)."""
        place = ((message.topic, message.queue_id), message.queue_offset)
        value = (message.properties.get(Property.UNIQ_KEY, ""), message.prepared_log_offset)
        if self._values.setdefault(place, value) != value:
            raise Violation(f"{place} was {self._values[place]}, and is {value} now")
        self.got.setdefault(group, set()).add(place)

    def popped(self, message: StoredMessage, *, is_acked: bool) -> None:
        """A message was popped: one of those that are visible."""
        key = message.properties.get(Property.UNIQ_KEY, "")
        if key not in self._visible:
            self._visible |= {item.key for item in self._messages()}
        if key not in self._visible:
            raise Violation(f"{key} was popped, and nobody can see it")
        if is_acked:
            self._popped.add(key)

    def _messages(self) -> list[Seen]:
        """All messages that consumers can see, as far as the log still has them."""
        return [
            item
            for queue, seen in self.reading.queues.items()
            if queue[0].startswith("orders")
            for item in seen
            if item is not None and item.log_offset >= self.reading.deleted_before
        ]

    def moved(self, queue: Queue, offset: int) -> None:
        """A consumer was told that an offset which it got from the broker is none."""
        if not self.has_lost and not self.reading.min_log_offset:
            raise Violation(f"{queue}: offset {offset} was given out, and is none now")

    # -- the broker as it runs -------------------------------------------------------------------

    def stepped(self, core: BrokerCore) -> None:
        """An input was worked off: what became visible is seen by whoever looks now."""
        self.steps.note_queues(core)
        self.reading.note_begin(core.broker.store)
        engine = engine_of(core)
        if engine.halves.counters.undone:
            progress = core.broker.offsets.get(TRANSACTION_GROUP, Topic.HALF, 0)
            passed = {number for number in engine.halves.pending if number < progress}
            if passed:
                raise Violation(f"progress {progress} has passed halves {passed}, still pending")
        dispatched = core.broker.store.dispatcher.dispatched_offset
        if dispatched != self._dispatched:
            self._dispatched = dispatched
            finals = self.reading.advance(core.broker.store)
            self.steps.look(core, self.reading, finals, self._broker_ms())

    def audit(self, core: BrokerCore) -> None:
        """Look at everything that a running broker has."""
        self._stage.done["audits"] += 1
        self.stepped(core)
        self.reading.advance(core.broker.store)
        self._check_ends(self.reading)
        self.steps.check_order(self.reading)
        self.steps.check_ended_whole(core, self.reading)
        self.steps.check_delays(
            self.reading,
            core.broker.store_settings.delay_levels,
            has_gone_back=self._wall.has_gone_back,
        )
        # On a full disk the queues wait for room; what was promised is in the log.
        if core.broker.store.dispatcher.stalled is None:
            self._check_promises(self.reading)
            if not self.has_lost:
                self.check_progress(core)
        engine = engine_of(core)
        self._check_quarantine(engine)
        self._check_meter(engine)
        self.tally.check_running(engine, self.reading)
        self._tenant.check(core, survives=_ALL, loses=False)
        early = set(engine.halves.pending) & self.reading.outcomes.keys()
        if early:
            raise Violation(f"halves {sorted(early)} are pending, and op records name them")

    def _check_quarantine(self, engine: TransactionEngine) -> None:
        """On a sound disk a half cannot be read only when it was deleted for its age."""
        halves = self.reading.queues[Topic.HALF, 0]
        for number, why in engine.halves.quarantine.items():
            half = halves[number] if number < len(halves) else None
            if half is None or self._broker_ms() - half.message.stored_ms <= self._age_max_ms:
                raise Violation(f"half {number} is set aside on a sound disk: {why}")
            self._stage.done["halves deleted for their age"] += 1

    def _check_meter(self, engine: TransactionEngine) -> None:
        """What is said to be pending is what is pending."""
        rows = [engine.halves.pending.row(number) for number in engine.halves.pending]
        for what, said, rightly in (
            ("topics", engine.halves.meter.pending, Counter(row.topic for row in rows)),
            ("groups", engine.halves.meter.groups, Counter(row.group for row in rows)),
        ):
            if {name: count for name, count in said.items() if count} != rightly:
                raise Violation(f"pending by {what}: the meter says {said}, there are {rightly}")

    def _check_ends(self, reading: Reading) -> None:
        """(d): every end was asked for; (b): no final of what was rolled back or given up."""
        halves = {**reading.waiting_halves, **dict(reading.halves())}
        self._ledger.carried |= reading.carried_keys()
        for number, letter in reading.outcomes.items():
            ident = halves.get(number)
            if ident is None:
                if number >= len(reading.queues[Topic.HALF, 0]):
                    raise Violation(f"an op record names half {number}, which is not there")
                continue
            if ident[1] < reading.deleted_before:
                continue  # power may bring back the one and not the other
            is_final = ident in reading.finals or ident in reading.waiting
            if is_final != (letter == "c"):
                raise Violation(f"{ident} is {letter!r}, its final {is_final}")
            if letter == "-":
                if not any(key == ident[0] and at > ident[1] for key, at in halves.values()):
                    raise Violation(f"{ident} was carried forward, and its copy is not there")
            elif letter == "x":
                self._check_given_up(reading, number, ident)
            elif self._ledger.said_ms(ident, _SAID_FOR[letter]) is None:
                raise Violation(f"{ident} was ended as {letter!r}, which nobody asked for")
        for ident in reading.finals.keys() | reading.waiting:
            if self._ledger.said_ms(ident, COMMIT) is None:
                raise Violation(f"{ident} is readable, and nobody committed it")

    def _check_given_up(self, reading: Reading, number: int, ident: Ident) -> None:
        discards = reading.given_up.get(ident[0])
        if number in reading.waiting_halves:
            return  # judged when it is seen
        if not discards:
            if ident[0] in reading.waiting_discards:
                return
            raise Violation(f"{ident} was given up and is not kept anywhere")
        halves = self._together(reading, number)
        counts = [
            self.tally.counted((h.key, h.log_offset)) + checks_before(h.message) for h in halves
        ]
        asked = max(counts)
        if asked >= self._plan.checks_max:
            return
        oldest_ms = min(first_stored_ms(half.message) for half in halves)
        age_ms = max(d.message.stored_ms for d in discards) - oldest_ms
        # Below 0 the clock was ahead when it was stored: it has counted since that was set right.
        if 0 <= age_ms <= self._age_max_ms:
            raise Violation(f"{ident} was given up after {asked} checks that reached somebody")
        self._stage.done["halves given up for their age, as seen in audits"] += 1

    def _together(self, reading: Reading, number: int) -> list[Seen]:
        """A half and those of its transaction."""
        halves = reading.queues[Topic.HALF, 0]
        half = halves[number]
        assert half is not None
        numbers = [number]
        if self._ledger.sent[half.key].truth.name:
            numbers = reading.joined[scope_of(half)]
        return [found for number in numbers if (found := halves[number]) is not None]

    def _check_promises(self, reading: Reading) -> None:
        """(a), (b), (g): what was acknowledged is so."""
        there = reading.stored()
        low = reading.deleted_before
        for ident, number in self._ledger.halves.items():
            if there.get(ident, number if ident[1] < low else -1) != number:
                raise Violation(f"half {ident} was acknowledged at {number}, and is not there")
        for ident, outcome in self._ledger.told.items():
            if ident[1] < low:
                continue
            found = there.get(ident)
            if found is None:
                raise Violation(f"{ident} was {outcome}, and its half is gone")
            letter = reading.outcomes.get(found) or reading.waiting_ends.get(found)
            if letter == "x" != _LETTERS[outcome] and self._is_of_successor(
                reading, ident, outcome
            ):
                continue
            if letter == "-" and _is_carried_on(reading, ident, outcome):
                continue
            is_final = ident in reading.finals or ident in reading.waiting
            if outcome == "committed" and not is_final:
                raise Violation(f"commit of {ident} was acknowledged, and it is not readable")
            if letter is None and outcome != "committed":
                raise Violation(f"{ident} was acknowledged as {outcome}, and no op record says so")
            if letter is not None and letter != _LETTERS[outcome]:
                raise Violation(f"{ident} was acknowledged as {outcome}, and is {letter!r}")

    def _is_of_successor(self, reading: Reading, ident: Ident, outcome: str) -> bool:
        """Whether a half that was given up was asked about again, and then ended so."""
        letters = {
            reading.outcomes.get(number) or reading.waiting_ends.get(number)
            for other, number in reading.stored().items()
            if other[0] == ident[0] and other != ident
        }
        return ident[0] in self._ledger.resumed and _LETTERS[outcome] in letters

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

    def opened(self, core: BrokerCore, *, loss: CrashLoss, durable_offset: int) -> None:
        """A broker was opened on what a crash has left: it becomes the one that is watched."""
        found, finals = self.judge(core, loss=loss, durable_offset=durable_offset)
        if not self._keeps_all(loss):
            self._forget(found)
            self._tenant.check(core, survives=durable_offset, loses=True)
        self.reading, self._dispatched = found, -1
        self.steps.note_queues(core)
        self.steps.look(core, found, finals, self._broker_ms())
        self._check_ends(found)
        self._check_promises(found)
        self.check_progress(core)
        self.tally.take_over(engine_of(core), found)

    def _keeps_all(self, loss: CrashLoss) -> bool:
        return loss is CrashLoss.NOTHING or self._plan.is_sync_flush

    def judge(
        self, core: BrokerCore, *, loss: CrashLoss, durable_offset: int
    ) -> tuple[Reading, list[Seen]]:
        """What a broker has made of the files after a crash: all that was durable, and every
        half either ended or pending."""
        survives = _ALL if loss is CrashLoss.NOTHING else durable_offset
        found = Reading(self._plan.topics, self.reading, known_end=survives)
        finals = found.advance(core.broker.store)
        self.reading.check_survivors(found, durable_offset=survives)
        engine = engine_of(core)
        pending, expected = set(engine.halves.pending), found.open_halves()
        self._check_quarantine(engine)
        self._check_meter(engine)
        if expected - pending:
            raise Violation(f"halves {_some(expected - pending)} have no end and are not pending")
        if pending - expected:
            raise Violation(f"halves {_some(pending - expected)} are pending, and were ended")
        self.tally.check_opened(engine, found, loss)
        self.steps.check_ended_whole(core, found)
        self.steps.check_sizes(core)
        self._tenant.check(core, survives=survives, loses=False)
        return found, finals

    def _forget(self, found: Reading) -> None:
        """Promises in memory went with the power; what is left holds from now on."""
        self.losses_count += 1
        halves = found.stored()
        ledger = self._ledger
        gone = [i for i, number in ledger.halves.items() if halves.get(i) != number]
        for ident in gone:
            if ident[1] >= found.deleted_before:
                del ledger.halves[ident]
        self.tally.forget_all_but(halves)
        for ident, outcome in list(ledger.told.items()):
            letter = found.outcomes.get(halves.get(ident, -1))
            if letter == "-":  # what became of the half that stands for it is what counts
                letter = _LETTERS[outcome] if _is_carried_on(found, ident, outcome) else None
            is_kept = letter is not None or ident in found.finals
            if not is_kept and ident[1] >= found.deleted_before:
                ledger.forget(ident)
        ends = {queue: len(seen) for queue, seen in found.queues.items()}
        for place in [p for p in self._values if p[1] >= ends[p[0]]]:
            del self._values[place]
            for got in self.got.values():
                got.discard(place)

    # -- what if -----------------------------------------------------------------------------

    def fork(self, core: BrokerCore, disk: SimDisk, make: MakeCore, loss: CrashLoss) -> None:
        """Were the broker to die at this moment: what would be found?"""
        stage = self._stage
        stage.done[f"forks: {loss.name}"] += 1
        copy = disk.fork()
        copy.crash(random.Random(stage.chance.getrandbits(32)), loss)
        offsets = copy.small.get(OFFSETS_FILE)
        again = make(copy, loss)
        again.open(self._broker_ms())
        stage.note("fork: %s", loss.name)
        found, finals = self.judge(
            again, loss=loss, durable_offset=core.broker.store.durable_offset
        )
        self.steps.look(again, found, finals, self._broker_ms())
        if loss is CrashLoss.NOTHING:
            engine = engine_of(core)
            live = {n for n in engine.halves.pending if n in found.open_halves()}
            # Of what was given up, and whose op record has no room yet: it is given up once more.
            given_up = {e.queue_offset for e in engine.unsealed.ends if e.state == State.EXPIRED}
            fresh = set(engine_of(again).halves.pending) - given_up
            if live != fresh:
                raise Violation(f"pending in memory {_some(live - fresh)} differ from the files' "
                                f"{_some(fresh - live)}")  # fmt: skip
        if self._keeps_all(loss):
            self._check_promises(found)
            self._check_ends(found)
        self._check_peer_view(found, engine_of(again), offsets)

    def _check_peer_view(
        self, found: Reading, engine: TransactionEngine, saved: bytes | None
    ) -> None:
        """RocketMQ asks about each pending half, else only where the op record is missing."""
        half_start, op_start = progress_of(saved)
        named = {
            half_offset
            for item in filter(None, found.queues[Topic.OP, 0][op_start:])
            for half_offset, _ in decode_op(item.message)
        }
        asked = {
            number
            for number, ident in found.halves()
            if number >= half_start and number not in named and ident[1] >= found.min_log_offset
        }
        pending = set(engine.halves.pending)
        if pending - asked - found.waiting_halves.keys():  # it builds their units at its start
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
        rows = {number: engine.halves.pending.row(number) for number in engine.halves.pending}
        limit_ms = self._broker_ms() - self._age_max_ms - _GIVEN_UP_WITHIN_MS
        kept = [number for number, row in rows.items() if row.stored_ms < limit_ms]
        if kept:
            raise Violation(f"halves {kept} are older than the log keeps them, and still pending")
        left = {
            number: row
            for number, row in rows.items()
            if row.group != lost_group and self._key_of(number) not in self._ledger.immune
        }
        if left:
            raise Violation(f"pending at the end, with producers there that know: {left}")
        waiting = self.steps.undelivered(self.reading, self._broker_ms())
        if waiting:
            raise Violation(f"delayed messages were never delivered: {waiting}")
        self._balance(len(rows))
        self._count_hidden()
        if not self.has_lost:
            for group in self.got:
                self._check_delivery(group)
            if self._plan.habits.has_popper:
                missing = {item.key for item in self._readable_ones()} - self._popped
                if missing:
                    raise Violation(f"not popped once more: {sorted(missing)[:10]}")

    def _key_of(self, number: int) -> str:
        half = self.reading.queues[Topic.HALF, 0][number]
        return half.key if half is not None else ""

    def _balance(self, pending_count: int) -> None:
        """Every half that was ever stored and not lost is in one place."""
        reading, done = self.reading, self._stage.done
        halves = reading.halves()
        ends = Counter(reading.outcomes.get(number, "") for number, _ in halves)
        low, ended = reading.min_log_offset, reading.outcomes
        deleted = sum(number not in ended and ident[1] < low for number, ident in halves)
        if len(halves) != sum(ends[letter] for letter in "crx-") + pending_count + deleted:
            raise Violation(f"{len(halves)} halves: {ends}, {pending_count} pending, {deleted} old")
        done["halves committed"] += ends["c"]
        done["halves rolled back"] += ends["r"]
        done["halves given up"] += ends["x"]
        done["halves carried forward"] += ends["-"]
        done["halves parked at the end"] += pending_count

    def _check_delivery(self, group: str) -> None:
        got = self.got[group]
        for queue in self.reading.queues:
            if queue[0].startswith("orders"):
                missing = {n for n in self._readable(queue) if (queue, n) not in got}
                if missing:
                    raise Violation(f"{group} never got {queue} {_some(missing)}")

    def _readable_ones(self) -> list[Seen]:
        lows = {queue: self.steps.unread_before(queue) for queue in self.reading.queues}
        places = [(item, (item.message.topic, item.message.queue_id)) for item in self._messages()]
        return [item for item, place in places if item.log_offset >= lows[place]]

    def _readable(self, queue: Queue) -> list[int]:
        """Queue offsets of the messages that consumers must have come to."""
        seen, low = self.reading.queues[queue], self.steps.unread_before(queue)
        numbers = self.reading.numbers_of(queue)
        return [n for n in numbers if (item := seen[n]) is not None and item.log_offset >= low]

    def _count_hidden(self) -> None:
        """Ends that were answered OK after a restart, although the outcome is the other one."""
        for ident, verdict in self._ledger.settled:
            number = self.reading.half_at.get(ident[1], -1)
            letter = self.reading.outcomes.get(number, "")
            if verdict != _SAID_FOR.get(letter, verdict):
                self._stage.done["ends answered: OK, and it is the other outcome"] += 1


def _some(numbers: set[int]) -> list[int]:
    return sorted(numbers)[:10]


def _is_carried_on(reading: Reading, ident: Ident, outcome: str) -> bool:
    """Whether a half that was carried forward ended so where it stands now."""
    return any(
        _LETTERS[outcome] in (reading.outcomes.get(number), reading.waiting_ends.get(number))
        for number, other in reading.halves()
        if other[0] == ident[0] and other[1] > ident[1]
    )
