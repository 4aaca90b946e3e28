"""Halves that stand in the log twice: put back by RocketMQ, or resumed."""

from __future__ import annotations

import msgspec

from escrowmq.base.message import Property, StoredMessage, Topic
from escrowmq.base.own_properties import CARRIED
from escrowmq.store.store import Store
from escrowmq.store.walk import with_unique_key
from escrowmq.txn.end_claim import Claim
from escrowmq.txn.half_identity import is_final_of, likeness
from escrowmq.txn.half_records import real_place
from escrowmq.txn.state import State


def stored_again(half: StoredMessage, *, state: State | None, alias: int, store: Store) -> int:
    """The queue offset at which a half stands again; -1 when it does not, or was ended itself.

    `state` is the half's own outcome, `alias` the newest copy that is known, or -1."""
    if state not in (None, State.EXPIRED, State.SETTLED):
        return -1
    if alias < 0 and state == State.EXPIRED:  # resumed and ended, before the last start
        key = half.properties.get(Property.UNIQ_KEY, "")
        for copy in with_unique_key(store, Topic.HALF, key, begin_ms=half.stored_ms):
            is_copy = likeness(copy.properties) == likeness(half.properties)
            if is_copy and Property.TRANSACTION_CHECK_TIMES in copy.properties:
                alias = max(alias, copy.queue_offset)
    return alias if alias > half.queue_offset else -1


def has_final(half: StoredMessage, store: Store) -> bool:
    """Whether the message that a commit of a half makes visible is in the log."""
    place = real_place(half)
    if place is None:
        return False
    unique_key = half.properties.get(Property.UNIQ_KEY, "")
    for final in with_unique_key(store, place[0], unique_key, begin_ms=half.stored_ms):
        # One that was delivered later, by a delay, does not say of which half it is.
        is_named = final.prepared_log_offset in (half.log_offset, 0)
        if is_named and is_final_of(final, likeness(half.properties)):
            return True
    return False


def follow(claim: Claim, place: tuple[int, int], store: Store) -> Claim:
    """What is claimed about a half, for its copy that was carried forward to a place (queue offset
    and log offset); as it is when the claim is not about the first copy of that."""
    queue_offset, log_offset = place
    # By the log: with SYNC_FLUSH, or without room, the copy has no unit yet.
    copy = store.read(log_offset)
    first = copy.properties.get(CARRIED, "") if copy is not None else ""
    if first.startswith(f"{claim.queue_offset}:{claim.log_offset}:"):
        return msgspec.structs.replace(claim, queue_offset=queue_offset, log_offset=log_offset)
    return claim
