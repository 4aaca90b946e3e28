"""Halves that stand in the log twice: those that a peer puts back, and those that were resumed."""

from __future__ import annotations

from typing import Final

from escrowmq.base.message import Property, StoredMessage, Topic
from escrowmq.codec.record import decode_record
from escrowmq.store.store import Store
from escrowmq.txn.state import State

_COPIES_MAX: Final = 8
_EVER_MS: Final = (1 << 62) - 1


def stored_again(half: StoredMessage, *, state: State | None, alias: int, store: Store) -> int:
    """The queue offset at which a half stands again; -1 when it does not, or was ended itself.

    `state` is the half's own outcome, `alias` the newest copy that is known, or -1."""
    if state not in (None, State.EXPIRED, State.SETTLED):
        return -1
    if alias < 0 and state == State.EXPIRED:  # resumed and ended, before the last start
        key = half.properties.get(Property.UNIQ_KEY, "")
        found = store.query(
            Topic.HALF, key, count_max=_COPIES_MAX, begin_ms=half.stored_ms, end_ms=_EVER_MS
        )
        for copy in map(decode_record, found.records):
            if Property.TRANSACTION_CHECK_TIMES in copy.properties:
                alias = max(alias, copy.queue_offset)
    return alias if alias > half.queue_offset else -1
