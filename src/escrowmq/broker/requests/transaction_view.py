"""Collects what operators see of a transaction, from the index, the log and recent events."""

from __future__ import annotations

from typing import Final

from escrowmq.base.message import Property, StoredMessage, Topic
from escrowmq.base.own_properties import ENDED_BY, TRANSACTION
from escrowmq.codec.ids import format_host, offset_id
from escrowmq.codec.pending_bodies import PendingEvent, TransactionItem
from escrowmq.store.store import Store
from escrowmq.store.walk import walk_queue
from escrowmq.txn.doubled_halves import status_of
from escrowmq.txn.half_records import recorded_checks, target_queue
from escrowmq.txn.op_records import STATES, decode_op
from escrowmq.txn.open_half import OpenHalf
from escrowmq.txn.recent_events import Event
from escrowmq.txn.state import State
from escrowmq.txn.transactions import Transactions

_OPS_READ_MAX: Final = 5_000
_ENDED: Final = frozenset(state.name.lower() for state in STATES.values())


class TransactionItems:
    """Builds the items that describe transactions to operators, and their events."""

    def __init__(self, store: Store, transactions: Transactions) -> None:
        self._store = store
        self._transactions = transactions
        self._engine = transactions.engine

    def pending_state(self, queue_offset: int, group: str) -> str:
        """Return what a pending half waits for: an answer to a check, a producer, or its next
        check."""
        if self._transactions.checker.has_unanswered_check(queue_offset):
            return "asked"
        return "parked" if self._transactions.checker.is_parked(queue_offset, group) else "waiting"

    def item(self, half: StoredMessage, queue_offset: int, now_ms: int) -> TransactionItem:
        """Return a half's item with its present state."""
        item, state = self._basic_item(half, now_ms), State.PENDING
        if queue_offset not in self._engine.halves.pending:
            state, queue_offset = self._status(half)
        if state == State.PENDING:
            row = self._engine.halves.pending.row(queue_offset)
            item.state = self.pending_state(queue_offset, row.group)
            item.half_offset, item.checks, item.origin = queue_offset, row.checks, row.origin
            item.next_check_ms = row.due_ms if item.state == "waiting" else -1
        else:
            item.state = state.name.lower()
        if self._transactions.keyring.has_key:
            unique_key = half.properties.get(Property.UNIQ_KEY, "")
            item.id = self._transactions.sign(half, unique_key, now_ms)
        return item

    def _status(self, half: StoredMessage) -> tuple[State, int]:
        """Return the state of a half's transaction, and the queue offset of the half, or of its
        pending copy if it was carried forward."""
        named = OpenHalf(half.queue_offset, half)
        state, (queue_offset, *_) = status_of(named, self._engine.halves, self._store)
        return state, queue_offset

    def discarded_item(self, message: StoredMessage, now_ms: int) -> TransactionItem:
        """Return the item of a discarded transaction. Its offset is its position in the queue of
        discarded ones."""
        item = self._basic_item(message, now_ms)
        item.checks = recorded_checks(message.properties)
        item.state = self._transactions.resumption.state_of(message).name.lower()
        return item

    def _basic_item(self, half: StoredMessage, now_ms: int) -> TransactionItem:
        properties = half.properties
        topic, queue_id = target_queue(half) or ("", -1)
        return TransactionItem(
            half_offset=half.queue_offset,
            log_offset=half.log_offset,
            offset_id=offset_id(half.store_host, half.log_offset),
            topic=topic,
            queue_id=queue_id,
            group=properties.get(Property.PGROUP, ""),
            message_id=properties.get(Property.UNIQ_KEY, ""),
            keys=properties.get(Property.KEYS, ""),
            tags=properties.get(Property.TAGS, ""),
            transaction=properties.get(TRANSACTION, ""),
            born_ms=half.born_ms,
            stored_ms=half.stored_ms,
            age_ms=now_ms - half.stored_ms,
            body_size=len(half.body),
            state="",
        )

    def item_with_events(self, half: StoredMessage, now_ms: int) -> TransactionItem:
        """Return a half's item with its events, in order of time."""
        item = self.item(half, half.queue_offset, now_ms)
        noted = self._engine.halves.events.events_of(half.queue_offset)
        if item.state in _ENDED:
            self._add_end_event(item, half, noted)
        sender = item.origin or format_host(half.born_host)
        events = [PendingEvent(at_ms=half.stored_ms, what="stored", who=sender)]
        events += [
            PendingEvent(at_ms=event.at_ms, what=event.what, who=event.who, detail=event.detail)
            for event in noted
        ]
        if item.ended_ms >= 0:
            who = f"{item.ended_who} {item.reason}".strip()
            events.append(PendingEvent(at_ms=item.ended_ms, what=item.state, who=who))
        item.events = sorted(events, key=lambda event: event.at_ms)
        return item

    def _add_end_event(
        self, item: TransactionItem, half: StoredMessage, noted: list[Event]
    ) -> None:
        """Add when and by whom the transaction was ended, from the op record that names the
        half."""
        store = self._store
        _, queue_offset = self._status(half)
        at = store.offset_at(Topic.OP, 0, half.stored_ms)
        end = min(store.bounds(Topic.OP, 0)[1], at + _OPS_READ_MAX)
        for op in walk_queue(store, Topic.OP, at, end):
            letter = dict(decode_op(op)).get(queue_offset)
            if letter is None:
                continue
            item.ended_ms = op.stored_ms
            asked = [event.who for event in noted if event.what == "answered"]
            if who := op.properties.get(ENDED_BY, ""):
                item.ended_by = "operator"
                item.ended_who, _, item.reason = who.partition(" ")
            elif STATES[letter] == State.EXPIRED:
                item.ended_by = "broker"
            elif asked:
                item.ended_by, item.ended_who = "check", asked[-1]
            elif STATES[letter] in (State.COMMITTED, State.ROLLED_BACK):
                item.ended_by = "producer"
            return
