"""Reads revive records, and applies them to the check points in memory."""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from escrowmq.base.fixed_limits import LONG_MAX
from escrowmq.base.message import Property, StoredMessage
from escrowmq.codec.properties import parse_number
from escrowmq.codec.record import decode_record
from escrowmq.delivery.offsets import OffsetTable
from escrowmq.delivery.pop_check_points import MESSAGES_MAX, TIME_MAX, CheckPoints
from escrowmq.delivery.revive_records import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECK_POINT_TAG,
    MARK_GROUP,
    NEXT_PROPERTY,
    ORDER_TAG,
    RESET_TAG,
    REVIVE_GROUP,
    AckBody,
    CheckPointBody,
    CheckPointKey,
    OrderBody,
    ResetBody,
)
from escrowmq.errors import CorruptRecord
from escrowmq.store.store import Store

GRACE_MS: Final = 1_000
"""After a message's invisible time, its redelivery waits this long for an ack that is in flight."""

PEER_GRACE_MS: Final = 3_000
"""After the invisible time of a check point that RocketMQ has stored, its redelivery waits this
long: acks may still be in RocketMQ's timer."""

_READ_COUNT: Final = 256

_log = logging.getLogger(__name__)


class ReviveReader:
    """Reads revive records for a PopLedger, and applies them to its check points and offsets."""

    def __init__(self, store: Store, offsets: OffsetTable, popped: CheckPoints) -> None:
        self._store = store
        self._offsets = offsets
        self._popped = popped
        self.dropped_count = 0
        """The number of skipped records."""
        self._is_sound = True

    def note_holes(self) -> None:
        """Note that the log has holes. From now on, no offset advances past a message without its
        check point."""
        self._is_sound = False

    def read_all(self, topic: str, now_ms: int) -> None:
        """Read the records of a topic that may be open, and advance offsets not saved in time."""
        store = self._store
        for queue_id in store.queues_of(topic):
            low, end = store.bounds(topic, queue_id)
            at = max(low, self._offsets.get(REVIVE_GROUP, topic, queue_id) + 1)
            known = self._offsets.get(MARK_GROUP, topic, queue_id)
            while entries := store.read_units(topic, queue_id, at, min(_READ_COUNT, end - at)):
                for log_offset, size, _ in entries:
                    record = self.read_record(log_offset, size)
                    if record is not None:
                        self.apply_record(record, at, now_ms, moves_offsets=at >= known)
                    at += 1

    def read_record(self, log_offset: int, size: int) -> StoredMessage | None:
        """Return the record at a log offset; None, after counting it as skipped, if it is
        unreadable."""
        try:
            return decode_record(self._store.read_record(log_offset, size))
        except CorruptRecord as error:
            self._skip_record(log_offset, str(error))
            return None

    def apply_record(
        self, record: StoredMessage, revive_offset: int, now_ms: int, *, moves_offsets: bool
    ) -> None:
        """Apply a record to the check points; skip an invalid one. With `moves_offsets`, also
        advance the offsets of groups."""
        try:
            self._apply(record, revive_offset, now_ms, moves_offsets=moves_offsets)
        except Exception as error:  # noqa: BLE001 - one record; set aside, those behind it go on
            self._skip_record(record.log_offset, f"{type(error).__name__}: {error}")

    def _skip_record(self, log_offset: int, reason: str) -> None:
        self.dropped_count += 1
        _log.error("record at log offset %d is skipped: %s", log_offset, reason)

    def _apply(
        self, record: StoredMessage, revive_offset: int, now_ms: int, *, moves_offsets: bool
    ) -> None:
        """Apply a record. Raises if it is invalid."""
        tag = record.properties.get(Property.TAGS)
        if tag == CHECK_POINT_TAG:
            body = msgspec.json.decode(record.body, type=CheckPointBody)
            self._apply_check_point(record, body, revive_offset, now_ms, moves_offsets)
        elif tag in (ACK_TAG, BATCH_ACK_TAG):
            ack = msgspec.json.decode(record.body, type=AckBody)
            handle = CheckPointKey(ack.c, ack.t, ack.q, ack.so, ack.pt, record.queue_id)
            point = self._popped.find(handle)
            if point is not None:
                self._popped.acknowledge(point, ack.offsets())
        elif tag == ORDER_TAG and moves_offsets:
            order = msgspec.json.decode(record.body, type=OrderBody)
            if not self._is_of_deleted_topic(order.t, record):
                self._advance_offset(order.c, order.t, order.q, order.o, now_ms)
        elif tag == RESET_TAG and moves_offsets:
            reset = msgspec.json.decode(record.body, type=ResetBody)
            if not self._is_of_deleted_topic(reset.t, record):
                for queue_id, offset in reset.o.items():
                    if offset <= self._store.bounds(reset.t, queue_id)[1]:
                        self._offsets.commit(reset.c, reset.t, queue_id, offset, now_ms)

    def _apply_check_point(
        self,
        record: StoredMessage,
        body: CheckPointBody,
        revive_offset: int,
        now_ms: int,
        moves_offsets: bool,
    ) -> None:
        """Apply a check point's record: add the check point, and advance the group's offset if
        `moves_offsets`."""
        diffs = body.d if body.d is not None else list(range(body.n))
        if not 0 < len(diffs) <= MESSAGES_MAX or not 0 <= body.pt < TIME_MAX:
            return  # RocketMQ makes check points without messages to move an offset
        if self._is_of_deleted_topic(body.t, record):
            return
        handle = CheckPointKey(body.c, body.t, body.q, body.so, body.pt, record.queue_id)
        all_of_them = (1 << len(diffs)) - 1
        acked = body.bm & all_of_them
        if acked < all_of_them:
            grace_ms = PEER_GRACE_MS if Property.TIMER_OUT_MS in record.properties else GRACE_MS
            self._popped.add(
                handle,
                [body.so + diff for diff in diffs],
                invisible_ms=body.it,
                revive_offset=revive_offset,
                grace_ms=grace_ms - self._popped.ahead_ms(body.pt, now_ms),
                acked=acked,
            )
        following = parse_number(record.properties.get(NEXT_PROPERTY), most=LONG_MAX)
        if moves_offsets and following is not None:
            is_next = body.so <= self._offsets.get(body.c, body.t, body.q)
            if is_next or self._is_sound:
                self._advance_offset(body.c, body.t, body.q, following, now_ms)

    def _is_of_deleted_topic(self, topic: str, record: StoredMessage) -> bool:
        """Whether the topic was deleted after this record was stored."""
        return self._store.deleted.covers(topic, record.log_offset, record.stored_ms)

    def _advance_offset(
        self, group: str, topic: str, queue_id: int, offset: int, now_ms: int
    ) -> None:
        end = self._store.bounds(topic, queue_id)[1]
        if self._offsets.get(group, topic, queue_id) < offset <= end:
            self._offsets.commit(group, topic, queue_id, offset, now_ms)
