"""Stores pending halves again at the end of the log before their segments are deleted.

Like RocketMQ's putBackHalf: the copy replaces the first one, an op record says that the old one is
settled, and an END may name either. The copy comes first in the log. A start that finds a copy
without the op record drops the old one all the same, so that nothing is checked, or committed,
twice."""

from __future__ import annotations

from typing import Final

from escrowmq.base.fixed_limits import LONG_MAX
from escrowmq.base.message import Property, Topic
from escrowmq.base.own_properties import CARRIED
from escrowmq.codec.properties import number_in
from escrowmq.store.store import PutStatus, Store
from escrowmq.txn.check_schedule import Checker
from escrowmq.txn.engine import Engine
from escrowmq.txn.half_lifecycle import Halves
from escrowmq.txn.half_records import copy_to
from escrowmq.txn.pending import NEVER_MS

CARRIED_AT_ONCE: Final = 500
"""Halves per turn; the rest follow later."""

_FOLLOWED_MIN: Final = 10_000
"""At least this many positions are remembered, because ENDs may be repeated."""


class Carrier:
    """Carries the pending halves of one broker forward. A power failure may lose the copies until
    the log is durable up to them: store/retention waits for that before it deletes the old ones."""

    def __init__(self, engine: Engine, checker: Checker, store: Store) -> None:
        self._engine = engine
        self._checker = checker
        self._store = store
        self.carried_count = 0

    def carry(self, until: int, now_ms: int) -> int:
        """Carry pending halves before a log offset, a bounded number; return the log offset from
        which the log is then still needed."""
        pending = self._engine.halves.pending
        # Copies made in this turn are after it: they must not be carried again.
        until = min(until, self._store.end_offset)
        for _ in range(CARRIED_AT_ONCE):
            oldest = pending.oldest()
            if oldest is None or pending.log_offset(oldest) >= until:
                break
            if self._checker.is_under_way(oldest) or not self._carry_one(oldest, now_ms):
                break
        oldest = pending.oldest()
        return self._store.end_offset if oldest is None else pending.log_offset(oldest)

    def _carry_one(self, queue_offset: int, now_ms: int) -> bool:
        """Return False to be retried later."""
        engine = self._engine
        named = engine.halves.open_half(queue_offset)
        if named is None:
            return True
        half = named.message
        row = engine.halves.pending.row(queue_offset)
        first = half.properties.get(
            CARRIED, f"{half.queue_offset}:{half.log_offset}:{row.stored_ms}"
        )
        copy = copy_to(
            half,
            Topic.HALF,
            **{
                CARRIED: first,
                Property.TRAN_PREPARED_QUEUE_OFFSET: first.partition(":")[0],
                Property.TRANSACTION_CHECK_TIMES: str(row.checks),
            },
        )
        put = self._store.put(copy, now_ms, is_settling=True)
        if put.status is not PutStatus.OK:
            return False
        # No `grow`: the body is not one that came just now.
        engine.halves.enter(
            copy.properties,
            queue_offset=put.queue_offset,
            log_offset=put.log_offset,
            stored_ms=row.stored_ms,
            origin=row.origin,
            account=row.account,
        )
        # One that has come up already and waits for its turn has no appointment.
        due_ms = now_ms if row.due_ms >= NEVER_MS else row.due_ms
        engine.halves.pending.schedule(put.queue_offset, due_ms)
        engine.supersede(queue_offset, put.queue_offset)
        note_carried(engine.halves, copy.properties, put.queue_offset, put.log_offset)
        self.carried_count += 1
        return True


def note_carried(
    halves: Halves, properties: dict[str, str], queue_offset: int, log_offset: int
) -> int:
    """Record the present position of a half that was carried forward; return the queue offset of
    the previous copy."""
    first = number_in(properties[CARRIED].partition(":")[0], most=LONG_MAX)
    if first is None:
        return -1
    old, _ = halves.carried.get(first, (first, -1))
    halves.carried[first] = queue_offset, log_offset
    _forget_ended(halves)
    return old


def _forget_ended(halves: Halves) -> None:
    """Stop tracking copies whose transactions have ended. A member of a group that only copies
    tracks them, too."""
    carried, pending = halves.carried, halves.pending
    if len(carried) > 2 * len(pending) + _FOLLOWED_MIN:
        for first, (newest, _) in list(carried.items()):
            if newest not in pending:
                del carried[first]
