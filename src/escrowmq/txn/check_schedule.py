"""Schedules checks: decides when each pending transaction is checked, and with which client.

Each half has its own deadline, by the broker's clock. The client that sent it is asked first, then
the other members of its group in turn. A check counts once it was passed to a connection, unless
the connection ends before it sends anything more. Without a connected producer the half is parked,
and checked when a producer of the group connects. Only a few checks per group are in flight at a
time, so that one bad group starves no other."""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable, Container, Iterator
from itertools import islice
from typing import Final

import msgspec

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.log_throttle import RepeatedErrors
from escrowmq.base.message import StoredMessage
from escrowmq.base.own_properties import OWNER
from escrowmq.errors import StorageError
from escrowmq.txn.check_immunity import immunity_ms
from escrowmq.txn.due_action import DueAction, choose_action
from escrowmq.txn.end_claim import EndResult
from escrowmq.txn.engine import TransactionEngine
from escrowmq.txn.open_half import OpenHalf
from escrowmq.txn.pending import PendingRow
from escrowmq.txn.state import Verdict
from escrowmq.txn.transaction_counters import CheckCounters
from escrowmq.txn.unconfirmed_checks import UnconfirmedChecks

_log = logging.getLogger(__name__)

DUE_HANDLED_MAX: Final = 100
"""The most deadlines that are handled in one turn."""

CHECKS_SENT_MAX: Final = 50
"""The most checks that are sent in one turn: this takes some 4 ms, during which no END is
served."""

FAILURES_MAX: Final = 50
"""The most halves of one turn that the disk may fail to read: each can take milliseconds."""

UNPARKED_MAX: Final = 5_000
"""The most parked halves that become due in one turn when a producer connects: this takes some 5
ms."""

RETRY_MS: Final = 1_000
_NEVER_MS: Final = (1 << 62) - 1


class LiveProducer(msgspec.Struct):
    """A connected producer of a group, and the topics to which it publishes."""

    peer: int
    client_id: str
    topics: Container[str] = ()


class CheckToSend(msgspec.Struct):
    """A check to be sent now: the half, and the connection to send it to."""

    peer: int
    queue_offset: int
    half: StoredMessage
    count: int


class _UnansweredCheck(msgspec.Struct):
    queue_offset: int
    group: str
    peer: int
    asked_ms: int


class CheckScheduler:
    """Decides when each pending half of a broker is checked, and with which producer."""

    def __init__(
        self,
        engine: TransactionEngine,
        settings: BrokerSettings,
        *,
        age_max_ms: Callable[[], int],
        members: Callable[[str], list[LiveProducer]],
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._age_max_ms = age_max_ms
        self._members = members
        self.may_see: Callable[[int, str, str, str], bool] | None = None
        """Whether a connection may see a half of a topic, group and account; None: all may."""
        self._ready: dict[str, collections.deque[int]] = {}
        self._parked = engine.halves.parked
        self._unparking: collections.deque[tuple[Iterator[int], int]] = collections.deque()
        """Parked halves that become due: an iterator for each group, with the new deadline."""
        self._unanswered: dict[int, _UnansweredCheck] = {}
        self._by_time: collections.deque[_UnansweredCheck] = collections.deque()
        self._group_load: collections.Counter[str] = collections.Counter()
        self._unanswered_counts: collections.Counter[int] = collections.Counter()
        self._mute_until_ms: dict[int, int] = {}
        self._turn = self._failures_count = 0
        self._has_room = False
        self._unread = RepeatedErrors()
        self.unconfirmed = UnconfirmedChecks()
        self.counters = CheckCounters()

    # -- what happens outside ----------------------------------------------------------------

    def unpark_for_producer(self, group: str, now_ms: int) -> None:
        """Make all parked halves of a group due, because a producer connected."""
        self._unparking.append((iter(self._parked.pop(group, ())), now_ms))
        self._unpark_some()

    def unpark_group(self, group: str) -> None:
        """Make all parked halves of a group due, because its producers may see more halves now."""
        self.unpark_for_producer(group, 0)

    def _unpark_some(self) -> None:
        """Make parked halves due, up to the limit of one turn."""
        pending = self._engine.halves.pending
        left = UNPARKED_MAX
        while self._unparking and left:
            parked, at_ms = self._unparking[0]
            for queue_offset in islice(parked, left):
                left -= 1
                if queue_offset in pending:
                    pending.schedule(queue_offset, at_ms)
            if left:
                self._unparking.popleft()

    def peer_lost(self, peer: int, now_ms: int) -> None:
        """Uncount checks that may not have arrived before their connection was lost."""
        self._unanswered_counts.pop(peer, None)
        self._mute_until_ms.pop(peer, None)
        # The number of checks is limited so that a producer without an answer is not asked forever.
        # A check that a dead connection never read must not count towards that limit.
        halves = self._engine.halves
        for queue_offset in self.unconfirmed.take_unconfirmed(peer):
            if queue_offset in halves.pending and not self._settings.counts_all_checks:
                self._uncount_check(queue_offset)
                halves.events.add(now_ms, queue_offset, "not heard", detail="connection lost")

    def note_answer(self, queue_offset: int, peer: int, *, is_unknown: bool = False) -> None:
        """Note that a check was answered, so that the next check of the group may be sent."""
        self._unanswered_counts.pop(peer, None)
        self._mute_until_ms.pop(peer, None)
        self.unconfirmed.confirm(peer, queue_offset)
        if self._remove_unanswered(queue_offset):
            self.counters.answered += 1
            self.counters.unknown += is_unknown

    def note_not_sent(self, queue_offset: int) -> None:
        """Uncount a check that could not be sent: the producer was not asked."""
        self._remove_unanswered(queue_offset)
        if not self._settings.counts_all_checks:
            self._uncount_check(queue_offset)

    def note_open_report(self, queue_offset: int, peer: int) -> None:
        """Note a client's report that the transaction is still open there. While the client repeats
        the report, only that client is asked, without a limit on checks. In RocketMQ mode, a report
        has no effect."""
        if self._settings.asks_origin_first and queue_offset in self._engine.halves.pending:
            self._engine.halves.note_open_report(queue_offset, peer)

    def _remove_unanswered(self, queue_offset: int) -> bool:
        under_way = self._unanswered.pop(queue_offset, None)
        if under_way is None:
            return False
        self._group_load[under_way.group] -= 1
        assert self._group_load[under_way.group] >= 0, under_way.group
        self._has_room = True
        if not self._group_load[under_way.group]:
            del self._group_load[under_way.group]
        return True

    def unanswered_checks(self) -> list[tuple[int, int]]:
        """Return the queue offset and the connection of each unanswered check."""
        return [(each.queue_offset, each.peer) for each in self._unanswered.values()]

    def has_unanswered_check(self, queue_offset: int) -> bool:
        """Whether a half has an unanswered check."""
        return queue_offset in self._unanswered

    def is_parked(self, queue_offset: int, group: str) -> bool:
        """Whether a half is parked, because no producer of its group is connected."""
        return queue_offset in self._parked.get(group, ())

    def parked_count(self, group: str) -> int:
        """Return the number of a group's parked halves."""
        return len(self._parked.get(group, ()))

    def parked_groups(self) -> list[str]:
        """Return the groups that have parked halves."""
        return list(self._parked)

    def check_now(self, queue_offsets: list[int], now_ms: int) -> None:
        """Make the checks of these halves due now."""
        pending = self._engine.halves.pending
        for queue_offset in queue_offsets:
            self._engine.halves.unpark(queue_offset, pending.group(queue_offset))
            pending.schedule(queue_offset, now_ms)

    # -- time --------------------------------------------------------------------------------

    def clock_leapt(self, by_ms: int) -> None:
        """Shift deadlines and timeouts by the clock's jump, so that none comes too early."""
        self._engine.halves.pending.clock_leapt(by_ms, self._age_max_ms())
        self.unconfirmed.clock_leapt(by_ms)
        for under_way in self._by_time:
            under_way.asked_ms += by_ms
        for peer in self._mute_until_ms:
            self._mute_until_ms[peer] += by_ms

    def wake_at_ms(self) -> int:
        """The time to call `take_due_checks` next."""
        if self._unparking or (self._has_room and self._ready):
            return 0
        at_ms = self._engine.halves.pending.wake_at_ms()
        return min(at_ms, self._next_timeout_ms())

    def _next_timeout_ms(self) -> int:
        """The time at which the oldest unanswered check times out, by the current setting."""
        if not self._by_time:
            return _NEVER_MS
        return self._by_time[0].asked_ms + self._settings.check_answer_ms

    def take_due_checks(self, now_ms: int) -> list[CheckToSend]:
        """Return the checks to send now. Discard halves that are too old or checked too often."""
        self._expire_unanswered(now_ms)
        self._unpark_some()
        self._has_room, self._failures_count = False, 0
        for queue_offset in self._engine.halves.pending.take_due(now_ms, DUE_HANDLED_MAX):
            group = self._engine.halves.pending.group(queue_offset)
            self._ready.setdefault(group, collections.deque()).append(queue_offset)
        asks: list[CheckToSend] = []
        for group in list(self._ready):
            if self._is_turn_over(asks):
                break
            self._handle_group(group, now_ms, asks)
        self._has_room = len(asks) >= CHECKS_SENT_MAX
        return asks

    def _expire_unanswered(self, now_ms: int) -> None:
        """End the wait for checks that timed out, and mark silent clients as mute."""
        while self._next_timeout_ms() <= now_ms:
            under_way = self._by_time.popleft()
            # Answered checks stay in the queue. `is`: the half may have been checked again.
            if self._unanswered.get(under_way.queue_offset) is not under_way:
                continue
            self._remove_unanswered(under_way.queue_offset)
            self.counters.unanswered += 1
            self._engine.halves.events.add(now_ms, under_way.queue_offset, "unanswered")
            if all(member.peer != under_way.peer for member in self._members(under_way.group)):
                continue  # it has disconnected, so its silence is not recorded
            self._unanswered_counts[under_way.peer] += 1
            if 0 < self._settings.mute_after <= self._unanswered_counts[under_way.peer]:
                self._mute_until_ms[under_way.peer] = now_ms + self._settings.mute_ms

    def _is_turn_over(self, asks: list[CheckToSend]) -> bool:
        return len(asks) >= CHECKS_SENT_MAX or self._failures_count >= FAILURES_MAX

    def _handle_group(self, group: str, now_ms: int, asks: list[CheckToSend]) -> None:
        """Handle due halves of one group, up to the number of checks that may be in flight."""
        ready, halves = self._ready[group], self._engine.halves
        members = self._responsive_members(group, now_ms)
        while ready and self._group_load[group] < self._settings.checks_in_flight_max:
            if self._is_turn_over(asks):
                self._ready[group] = self._ready.pop(group)  # other groups come first
                break
            queue_offset = ready.popleft()
            # Only a bundle's first half is checked: the others have no deadline before they lead.
            is_pending = queue_offset in halves.pending
            if is_pending and halves.bundles.is_first_of_bundle(queue_offset):
                self._try_due_half(queue_offset, group, members, now_ms, asks)
        if not ready:
            del self._ready[group]

    def _responsive_members(self, group: str, now_ms: int) -> list[LiveProducer]:
        return self._without_mute(self._members(group), now_ms)

    def _without_mute(self, members: list[LiveProducer], now_ms: int) -> list[LiveProducer]:
        awake = [m for m in members if self._mute_until_ms.get(m.peer, 0) <= now_ms]
        return awake or members  # if all are mute, ask a mute one rather than none

    def _members_that_may_see(self, row: PendingRow, half: StoredMessage) -> list[LiveProducer]:
        """Return the members that may see a half, including mute ones."""
        members, may_see = self._members(row.group), self.may_see
        if may_see is None:
            return members
        owner = half.properties.get(OWNER, "")
        return [m for m in members if may_see(m.peer, row.topic, row.group, owner)]

    def _try_due_half(
        self,
        queue_offset: int,
        group: str,
        members: list[LiveProducer],
        now_ms: int,
        asks: list[CheckToSend],
    ) -> None:
        try:
            self._handle_due_half(queue_offset, group, members, now_ms, asks)
        except (OSError, StorageError) as error:  # one file of the log; others may be readable
            self._failures_count += 1
            self._engine.halves.pending.schedule(queue_offset, now_ms + RETRY_MS)
            if (end := self._unread.suppressed_note(group, now_ms)) is not None:
                _log.error("a half of group %s is checked later: %s%s", group, error, end)
        except Exception as error:  # noqa: BLE001 - one half; set aside, the others' turn comes
            _log.exception("half message at queue offset %d cannot be judged", queue_offset)
            if queue_offset in self._engine.halves.pending:
                self._engine.halves.set_aside(queue_offset, f"{type(error).__name__}: {error}")

    def _handle_due_half(
        self,
        queue_offset: int,
        group: str,
        members: list[LiveProducer],
        now_ms: int,
        asks: list[CheckToSend],
    ) -> None:
        pending = self._engine.halves.pending
        if not members and self._try_park_unread(queue_offset, group, now_ms):
            return
        open_half = self._engine.halves.open_half(queue_offset)
        if open_half is None:
            return
        if queue_offset in self._engine.halves.partly_ended:
            self._complete_end(open_half, now_ms)
            return
        if queue_offset in self._engine.halves.epochs.by_half:
            self._end_epoch_half(open_half, now_ms)
            return
        row, half = pending.row(queue_offset), open_half.message
        if self.may_see is not None:
            members = self._without_mute(self._members_that_may_see(row, half), now_ms)
        holder = self._last_open_client(queue_offset, row, half)
        # Checks of a client that reports the transaction as open are not limited.
        checks = row.checks if holder is None else 0
        fate = self._choose_action(row, checks, now_ms, is_reachable=bool(members))
        interval_ms = self._settings.transaction_check_interval_ms
        match fate:
            case DueAction.EXPIRE:
                self._discard_half(open_half, row.checks, now_ms)
            case DueAction.PARK if self._settings.counts_all_checks:
                self._count_check(queue_offset)
                pending.schedule(queue_offset, now_ms + interval_ms)
            case DueAction.PARK:
                self._park(queue_offset, group, row.stored_ms)
            case DueAction.ASK:
                member = holder or self._choose_producer(members, row, queue_offset)
                count = row.checks
                if holder is None:
                    count = self._count_check(queue_offset)
                    self.unconfirmed.note_sent(member.peer, queue_offset, now_ms)
                pending.schedule(queue_offset, now_ms + interval_ms)
                asks.append(CheckToSend(member.peer, queue_offset, half, count))
                self._engine.halves.events.add(now_ms, queue_offset, "asked", who=member.client_id)
                self._note_sent(queue_offset, group, member.peer, now_ms)

    def _try_park_unread(self, queue_offset: int, group: str, now_ms: int) -> bool:
        """Park a half without reading its record: reading many would delay other requests. Return
        False if the record is needed."""
        halves = self._engine.halves
        is_decided = queue_offset in halves.partly_ended or queue_offset in halves.epochs.by_half
        if is_decided or self._settings.counts_all_checks:
            return False
        row = halves.pending.row(queue_offset)
        if self._choose_action(row, row.checks, now_ms, is_reachable=False) is not DueAction.PARK:
            return False
        halves.take_open_reporter(queue_offset)
        self._park(queue_offset, group, row.stored_ms)
        return True

    def _choose_action(
        self, row: PendingRow, checks: int, now_ms: int, *, is_reachable: bool
    ) -> DueAction:
        return choose_action(
            checks=checks,
            checks_max=self._settings.transaction_checks_max,
            age_ms=now_ms - row.stored_ms,
            age_max_ms=self._age_max_ms(),
            is_reachable=is_reachable,
        )

    def _park(self, queue_offset: int, group: str, stored_ms: int) -> None:
        self._engine.halves.park(queue_offset, group)
        # A parked half is discarded when it is too old, even if no producer ever connects.
        self._engine.halves.pending.schedule(queue_offset, stored_ms + self._age_max_ms() + 1)

    def _count_check(self, queue_offset: int) -> int:
        count = self._engine.halves.pending.count_check(queue_offset)
        self._engine.halves.tally.record(queue_offset, count)
        return count

    def _uncount_check(self, queue_offset: int) -> None:
        count = self._engine.halves.pending.uncount_check(queue_offset)
        self._engine.halves.tally.record(queue_offset, count)

    def _complete_end(self, half: OpenHalf, now_ms: int) -> None:
        """Complete an END that could be stored only in part."""
        queue_offset = half.queue_offset
        verdict = self._engine.halves.partly_ended[queue_offset]
        self._engine.carry_out_verdict(half, verdict, now_ms=now_ms)
        if queue_offset in self._engine.halves.pending:
            self._engine.halves.pending.schedule(queue_offset, now_ms + RETRY_MS)

    def _end_epoch_half(self, half: OpenHalf, now_ms: int) -> None:
        """End a due half of an epoch as decided, or roll it back without a decision in time."""
        engine, queue_offset, message = self._engine, half.queue_offset, half.message
        attempt = engine.halves.epochs.by_half[queue_offset]
        verdict = engine.halves.epochs.verdict(attempt)
        if verdict is None:
            wish_ms = immunity_ms(message.properties)
            due_ms = message.stored_ms + (self._settings.epoch_ms if wish_ms is None else wish_ms)
            if now_ms < due_ms:  # an operator requested a check now
                engine.halves.pending.schedule(queue_offset, due_ms)
                return
            verdict = Verdict.ROLLBACK
            if engine.halves.epochs.mark_expired(attempt):
                _log.warning(
                    "there was no decision in time about batch %d of %s: the halves of "
                        "token %s are dropped", attempt.batch, attempt.query.name, attempt.token,
                )  # fmt: skip
                for other in engine.halves.epochs.halves(attempt):
                    engine.halves.pending.schedule(other, due_ms)
        engine.halves.events.add(now_ms, queue_offset, "decided", detail=verdict.name.lower())
        engine.carry_out_verdict(half, verdict, now_ms=now_ms)
        if queue_offset in engine.halves.pending:
            engine.halves.pending.schedule(queue_offset, now_ms + RETRY_MS)

    def _last_open_client(
        self, queue_offset: int, row: PendingRow, half: StoredMessage
    ) -> LiveProducer | None:
        """Return the connected client that last reported the transaction as open."""
        peer = self._engine.halves.take_open_reporter(queue_offset)
        if peer is None:
            return None
        members = self._members_that_may_see(row, half)
        return next((member for member in members if member.peer == peer), None)

    def _choose_producer(
        self, members: list[LiveProducer], row: PendingRow, queue_offset: int
    ) -> LiveProducer:
        """Choose the producer to ask: first the sender, then producers of the topic, then
        others."""
        if not self._settings.asks_origin_first:
            self._turn += 1
            return members[self._turn % len(members)]
        origins, publishers, others = [], [], []
        for member in members:
            if member.client_id == row.origin:
                origins.append(member)
            elif row.topic in member.topics:
                publishers.append(member)
            else:
                others.append(member)
        # Each half starts at another member, so that after a restart not all ask the same one.
        order = origins + _rotated(publishers, queue_offset) + _rotated(others, queue_offset)
        return order[row.checks % len(order)]

    def _note_sent(self, queue_offset: int, group: str, peer: int, now_ms: int) -> None:
        # First end an earlier check that is still unanswered, or its slot would be lost.
        self._remove_unanswered(queue_offset)
        under_way = _UnansweredCheck(queue_offset, group, peer, now_ms)
        self._unanswered[queue_offset] = under_way
        self._by_time.append(under_way)
        self._group_load[group] += 1
        self.counters.sent += 1

    def _discard_half(self, half: OpenHalf, checks: int, now_ms: int) -> None:
        queue_offset = half.queue_offset
        ended = self._engine.carry_out_verdict(half, Verdict.EXPIRE, now_ms=now_ms)
        if ended.answer is not EndResult.DONE:
            self._engine.halves.pending.schedule(queue_offset, now_ms + RETRY_MS)
            return
        self._remove_unanswered(queue_offset)
        self._engine.halves.events.add(
            now_ms, queue_offset, "expired", detail=f"after {checks} checks"
        )
        _log.error(
            "transaction at half offset %d of group %s for topic %s is given up after %d checks; "
            "it is kept in TRANS_CHECK_MAX_TIME_TOPIC",
            queue_offset, half.message.properties.get("PGROUP"), ended.topic, checks,
        )  # fmt: skip


def _rotated(members: list[LiveProducer], first: int) -> list[LiveProducer]:
    at = first % len(members) if members else 0
    return members[at:] + members[:at]
