"""Halves that are in the log twice: carried forward, put back by RocketMQ, or resumed. An END may
name any of the copies."""

from __future__ import annotations

from typing import NamedTuple

from escrowmq.base.message import Property, StoredMessage, Topic
from escrowmq.base.own_properties import CARRIED
from escrowmq.store.store import Store
from escrowmq.store.walk import find_by_unique_key
from escrowmq.txn.half_identity import identity_of_half, is_final_of
from escrowmq.txn.half_lifecycle import Halves
from escrowmq.txn.half_records import target_queue
from escrowmq.txn.open_half import OpenHalf
from escrowmq.txn.state import State


class HalfStatus(NamedTuple):
    """The state of a half's transaction, and the copy of the half that counts."""

    state: State
    half: OpenHalf
    """The copy whose age and properties apply. Its queue offset is that of the pending copy, if
    there is one."""


def newest_position(
    queue_offset: int, log_offset: int, halves: Halves, store: Store
) -> tuple[int, int]:
    """Return the queue offset and log offset of a half's newest copy. They are the half's own if it
    was not carried forward."""
    newest = halves.carried.get(queue_offset)
    if newest is None:
        return queue_offset, log_offset
    # Read from the log: with SYNC_FLUSH, or on a full disk, the copy has no queue unit yet.
    copy = store.read(newest[1])
    first = copy.properties.get(CARRIED, "") if copy is not None else ""
    return (
        newest if first.startswith(f"{queue_offset}:{log_offset}:") else (queue_offset, log_offset)
    )


def status_of(half: OpenHalf, halves: Halves, store: Store) -> HalfStatus:
    """Return whether a half's transaction is pending, perhaps as a copy, or how it was ended. If no
    outcome is recorded, a final record in the log proves a commit."""
    own = half.message.queue_offset
    if halves.pending.log_offset(own) == half.message.log_offset:
        return HalfStatus(State.PENDING, half)
    state = halves.ledger.outcome(own)
    last = last_carried(half.message, store) if state in (None, State.SETTLED) else None
    if last is not None and last.queue_offset in halves.pending:
        return HalfStatus(State.PENDING, half._replace(queue_offset=last.queue_offset))
    copy = newest_copy(half.message, halves, store)
    if copy in halves.pending:
        # A resumed transaction starts anew: its age is that of the resumed copy.
        resumed = halves.read_half(copy) if state == State.EXPIRED else None
        source = half if resumed is None else OpenHalf(copy, resumed)
        return HalfStatus(State.PENDING, source._replace(queue_offset=copy))
    if copy >= 0 and state == State.EXPIRED:
        state = halves.ledger.outcome(copy)
    if last is not None:
        state = halves.ledger.outcome(last.queue_offset)
    if state in (None, State.SETTLED):
        is_committed = has_final(half.message if last is None else last, store)
        state = State.COMMITTED if is_committed else State.SETTLED
    return HalfStatus(state, half)


def last_carried(half: StoredMessage, store: Store) -> StoredMessage | None:
    """Return the last copy of a half that was carried forward; None if there is none. (Copies whose
    transactions have ended are not in memory after a start.)"""
    like = identity_of_half(half.properties)
    first = half.properties.get(CARRIED) or f"{half.queue_offset}:{half.log_offset}:"
    for copy in find_by_unique_key(store, Topic.HALF, like[0], after=half.log_offset):
        is_copy = copy.properties.get(CARRIED, "").startswith(first)
        if is_copy and identity_of_half(copy.properties) == like:
            return copy
    return None


def newest_copy(half: StoredMessage, halves: Halves, store: Store) -> int:
    """Return the queue offset of a half's newest copy; -1 if there is none, or the half itself was
    ended."""
    state = halves.ledger.outcome(half.queue_offset)
    if state not in (None, State.EXPIRED, State.SETTLED):
        return -1
    like = identity_of_half(half.properties)
    copy = halves.aliases.get(like, -1)
    if copy < 0 and state == State.EXPIRED:  # resumed and ended, before the last start
        for other in find_by_unique_key(store, Topic.HALF, like[0], after=half.log_offset):
            is_copy = identity_of_half(other.properties) == like
            if is_copy and Property.TRANSACTION_CHECK_TIMES in other.properties:
                copy = max(copy, other.queue_offset)
    return copy if copy > half.queue_offset else -1


def has_final(half: StoredMessage, store: Store) -> bool:
    """Whether the log has the message that a commit of this half made visible."""
    place = target_queue(half)
    if place is None:
        return False
    like = identity_of_half(half.properties)
    for final in find_by_unique_key(store, place[0], like[0], after=half.log_offset):
        # A message that was delivered after a delay does not name its half.
        is_named = final.prepared_log_offset in (half.log_offset, 0)
        if is_named and is_final_of(final, like):
            return True
    return False
