"""Stores pending halves again at the end of the log before their segments are deleted.

Like RocketMQ's putBackHalf: the copy replaces the original, an op record says that the original is
settled, and an END may name either. The copy is written first. If a start finds a copy without the
op record, it drops the original, so that nothing is checked or committed twice.
"""

from __future__ import annotations

import logging
from typing import Final

from escrowmq.base.fixed_limits import LONG_MAX
from escrowmq.base.message import Property, Topic
from escrowmq.base.own_properties import CARRIED
from escrowmq.codec.properties import parse_number
from escrowmq.errors import StorageError
from escrowmq.store.store import PutStatus, Store
from escrowmq.txn.check_schedule import CheckScheduler
from escrowmq.txn.engine import TransactionEngine
from escrowmq.txn.half_lifecycle import Halves
from escrowmq.txn.half_records import copy_to
from escrowmq.txn.pending import NEVER_MS

_log = logging.getLogger(__name__)

CARRIED_AT_ONCE: Final = 500
"""The most halves that are carried forward in one turn; others follow in later turns."""

_FOLLOWED_MIN: Final = 10_000
"""At least this many carried halves are tracked, even if their transactions have ended: ENDs may be
repeated."""


class Carrier:
    """Carries the pending halves of one broker forward. Store/retention deletes a segment only when
    the log is durable up to the copies."""

    def __init__(self, engine: TransactionEngine, checker: CheckScheduler, store: Store) -> None:
        self._engine = engine
        self._checker = checker
        self._store = store
        self.carried_count = 0

    def carry(self, until: int, now_ms: int) -> int:
        """Carry forward the pending halves before a log offset, at most `CARRIED_AT_ONCE`. Return
        the log offset from which on the log is still needed."""
        pending = self._engine.halves.pending
        # Copies made in this turn are after this offset, and so are not carried again.
        until = min(until, self._store.end_offset)
        for _ in range(CARRIED_AT_ONCE):
            oldest = pending.oldest_offset()
            if oldest is None or pending.log_offset(oldest) >= until:
                break
            if self._checker.has_unanswered_check(oldest):
                break
            try:
                if not self._carry_one(oldest, now_ms):
                    break
            except (OSError, StorageError) as error:  # its segment is kept, and all goes on
                _log.error("a pending half is carried forward later: %s", error)
                break
        oldest = pending.oldest_offset()
        return self._store.end_offset if oldest is None else pending.log_offset(oldest)

    def _carry_one(self, queue_offset: int, now_ms: int) -> bool:
        """Store a copy of a half and let it replace the original. Return False if that must be
        retried later."""
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
        # No `grow`: the copy's body is not a new one.
        engine.halves.add_half(
            copy.properties,
            queue_offset=put.queue_offset,
            log_offset=put.log_offset,
            stored_ms=row.stored_ms,
            origin=row.origin,
            account=row.account,
        )
        # A half that is due already and waits for its turn has no deadline of its own.
        due_ms = now_ms if row.due_ms >= NEVER_MS else row.due_ms
        engine.halves.pending.schedule(put.queue_offset, due_ms)
        engine.supersede(queue_offset, put.queue_offset)
        note_carried(engine.halves, copy.properties, put.queue_offset, put.log_offset)
        self.carried_count += 1
        return True


def note_carried(
    halves: Halves, properties: dict[str, str], queue_offset: int, log_offset: int
) -> int:
    """Record where a carried half is now. Return the queue offset of its previous copy."""
    first = parse_number(properties[CARRIED].partition(":")[0], most=LONG_MAX)
    if first is None:
        return -1
    old, _ = halves.carried.get(first, (first, -1))
    halves.carried[first] = queue_offset, log_offset
    _forget_ended_copies(halves)
    return old


def _forget_ended_copies(halves: Halves) -> None:
    """Stop tracking copies whose transactions have ended, if many are tracked."""
    carried, pending = halves.carried, halves.pending
    if len(carried) > 2 * len(pending) + _FOLLOWED_MIN:
        for first, (newest, _) in list(carried.items()):
            if newest not in pending:
                del carried[first]
