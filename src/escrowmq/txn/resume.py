"""Resumes discarded transactions: all messages of one, or none.

A discarded message says how many messages its transaction had. If some are no longer kept, it
cannot be resumed. If a crash interrupted a resumption, the transaction cannot be committed before
the rest is resumed.
"""

from __future__ import annotations

from typing import Final

import msgspec

from escrowmq.base.fixed_limits import BUNDLE_MESSAGES_MAX, INT_MAX
from escrowmq.base.message import Property, StoredMessage, Topic
from escrowmq.base.own_properties import MESSAGES, TRANSACTION
from escrowmq.codec.properties import parse_number
from escrowmq.store.store import PutResult, PutStatus, Store
from escrowmq.store.walk import find_by_unique_key, walk_queue
from escrowmq.txn.bundle import bundle_of
from escrowmq.txn.engine import TransactionEngine
from escrowmq.txn.half_identity import identity_of_half
from escrowmq.txn.half_records import copy_to
from escrowmq.txn.state import State

_NEIGHBOURS_COUNT: Final = 2 * BUNDLE_MESSAGES_MAX
"""How many discarded messages before and after one are searched for others of its transaction. All
were discarded together. A message may be there twice if it was resumed and discarded again."""


class ResumeResult(msgspec.Struct):
    """The result of a resumption."""

    count: int = 0
    """The number of halves that are pending again."""
    refusal: str = ""
    """Why none was resumed; empty if some were."""
    put: PutResult | None = None
    """The failed result of storing a half; None if all were stored."""


class TransactionResumer:
    """Finds discarded transactions, and makes them pending again."""

    def __init__(self, engine: TransactionEngine, store: Store) -> None:
        self._engine = engine
        self._store = store

    def state_of(self, source: StoredMessage) -> State:
        """Return the state of the transaction of a half, or of a discarded message."""
        if source.topic == Topic.HALF:
            return self._state_at(source.queue_offset)
        unique_key = source.properties.get(Property.UNIQ_KEY, "")
        like = identity_of_half(source.properties)
        halves = find_by_unique_key(self._store, Topic.HALF, unique_key)
        numbers = [
            half.queue_offset for half in halves if identity_of_half(half.properties) == like
        ]
        # With SYNC_FLUSH, the index lacks messages that were resumed a moment ago.
        for number in (self._engine.halves.aliases.get(like), *numbers):
            state = State.EXPIRED if number is None else self._state_at(number)
            if state not in (State.EXPIRED, State.SETTLED):
                return state
        return State.EXPIRED

    def _state_at(self, queue_offset: int) -> State:
        if queue_offset in self._engine.halves.pending:
            return State.PENDING
        return self._engine.halves.ledger.outcome(queue_offset) or State.SETTLED

    def resume(self, source: StoredMessage, now_ms: int) -> ResumeResult:
        """Make all discarded messages of this one's transaction pending again."""
        whole = self._all_messages(source)
        # The first kept message says how many there were; halves themselves may not.
        wanted = parse_number(whole[0].properties.get(MESSAGES), most=INT_MAX)
        if wanted is not None and len(whole) < wanted:
            name = source.properties.get(TRANSACTION)
            return ResumeResult(
                refusal=f"of the {wanted} messages of transaction {name} only {len(whole)} are "
                "kept; nothing was changed"
            )
        sources = [one for one in whole if self.state_of(one) == State.EXPIRED]
        if len(sources) > 1 and not self._store.has_settling_space(
            [copy_to(one, Topic.HALF) for one in sources]
        ):
            return ResumeResult(
                put=PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason="no room for all")
            )
        resumed = ResumeResult()
        for one in sources:
            put = self._engine.resume_half(one, now_ms)
            if put.status is not PutStatus.OK:
                resumed.put = put
                break
            resumed.count += 1
        return resumed

    def _all_messages(self, source: StoredMessage) -> list[StoredMessage]:
        """Return the messages of a discarded transaction, each once, in their order."""
        if TRANSACTION not in source.properties:
            return [source]
        if source.topic == Topic.HALF:
            unique_key = source.properties.get(Property.UNIQ_KEY, "")
            kept = find_by_unique_key(self._store, Topic.CHECK_MAX_TIME, unique_key)
            if not kept:
                return [source]
            source = kept[0]
        low, end = self._store.bounds(Topic.CHECK_MAX_TIME, 0)
        first = max(low, source.queue_offset - _NEIGHBOURS_COUNT)
        last = min(end, source.queue_offset + _NEIGHBOURS_COUNT)
        found: dict[str, StoredMessage] = {}
        for message in walk_queue(self._store, Topic.CHECK_MAX_TIME, first, last):
            if bundle_of(message.properties) == bundle_of(source.properties):
                unique_key = message.properties.get(Property.UNIQ_KEY, "")
                # The newest ones were all discarded together, in their order.
                found.pop(unique_key, None)
                found[unique_key] = message
        found.setdefault(source.properties.get(Property.UNIQ_KEY, ""), source)
        return list(found.values())
