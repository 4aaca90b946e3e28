"""Finds messages: by log offset, by time, by key."""

from __future__ import annotations

from typing import Final

from escrowmq.base.message import Property, StoredMessage, split_keys
from escrowmq.codec.hashes import java_hash
from escrowmq.codec.log_records import record_fault, record_stored_ms
from escrowmq.codec.record import decode_record
from escrowmq.codec.record_layout import HEAD_V6, PLACED, RECORD_SIZE_MIN, SIZE, TIME
from escrowmq.errors import CorruptRecord
from escrowmq.store.consume_queue import ConsumeQueue
from escrowmq.store.index_chains import key_hash
from escrowmq.store.results import FoundByKey
from escrowmq.store.store_parts import StoreState

_FRONT_SIZE: Final = HEAD_V6.stored_at + TIME.size
"""The number of bytes at the beginning of any record that contain its store time."""

_QUERY_SIZE_MAX: Final = 16 * 1024 * 1024


class Searcher:
    """Looks up messages in a store, by log offset, key or time."""

    def __init__(self, state: StoreState) -> None:
        self._state = state

    def message_at(self, log_offset: int) -> StoredMessage | None:
        """Return the message whose record starts at an untrusted log offset; None when none does.

        Clients can put anything into a message, even a forged record, so it is not enough that the
        bytes look like one. The queue that the record names must lead there.
        """
        record = self.record_at(log_offset)
        try:
            message = decode_record(record) if record is not None else None
        except CorruptRecord:
            return None
        if message is None:
            return None
        state, place = self._state, (message.topic, message.queue_id)
        queue, queue_offset = state.queues.by_key.get(place), message.queue_offset
        if queue is not None and queue_offset >= queue.end:
            # Its unit will be written when the disk has space, or the record is durable.
            dispatcher = state.dispatcher
            is_led_to = dispatcher.held_back.covers(queue, log_offset) or any(
                waiting.covers(log_offset) for waiting in dispatcher.waiting
            )
        else:
            there = log_offset, message.record_size
            is_led_to = state.queues.leads_to(place, queue_offset, there)
        return message if is_led_to else None

    def record_at(self, log_offset: int) -> bytes | None:
        """Return the whole record at a log offset that is known to be the start of one; None when
        it is unreadable."""
        log = self._state.log
        if not log.min_offset <= log_offset <= log.end_offset - RECORD_SIZE_MIN:
            return None
        size = int.from_bytes(log.read(log_offset, SIZE.size), "big")
        if not RECORD_SIZE_MIN <= size <= log.end_offset - log_offset:
            return None
        record = log.read(log_offset, size)
        has_crc = self._state.settings.appends_crc
        return record if record_fault(record, log_offset, has_crc=has_crc) is None else None

    def stored_ms(self, queue: ConsumeQueue, queue_offset: int) -> int:
        """Return the store time of the message at a queue offset; -1 when there is none."""
        unit = queue.unit(queue_offset)
        return self.stored_ms_at(unit[0]) if unit is not None else -1

    def stored_ms_at(self, place: int) -> int:
        """Return the store time of the record at a log offset, which comes from a unit or is the
        start of a segment; -1 when there is none."""
        head = self._state.log.read(place, _FRONT_SIZE)
        if len(head) < _FRONT_SIZE or PLACED.unpack_from(head)[2] != place:
            return -1
        return record_stored_ms(head)

    def offset_at(self, queue: ConsumeQueue, time_ms: int, *, upper: bool) -> int:
        """Return the first queue offset stored at a time or later. With `upper`: the last one
        stored at that time or earlier."""
        low, high = queue.min, queue.end
        if low == high:
            return 0
        wanted = time_ms + 1 if upper else time_ms
        begin = low
        while low < high:
            middle = (low + high) // 2
            found, stored_ms = self._stored_ms_up_to(queue, middle, low)
            if stored_ms >= wanted:
                high = found
            else:
                low = middle + 1
        if not upper:
            return low
        # As RocketMQ (ConsumeQueue.binarySearchInQueueByTime) answers before the beginning: 0.
        return low - 1 if low > begin else 0

    def _stored_ms_up_to(self, queue: ConsumeQueue, queue_offset: int, low: int) -> tuple[int, int]:
        """Search backwards, from a queue offset to `low`, for a message with a readable store time.
        Return its offset and that time; `low` and -1 if there is none."""
        while queue_offset >= low:
            queue_offset, unit = queue.find_unit_backwards(queue_offset, low)
            stored_ms = self.stored_ms_at(unit[0]) if unit is not None else -1
            if stored_ms >= 0:
                return queue_offset, stored_ms
            queue_offset -= 1
        return low, -1

    def query(
        self, topic: str, key: str, *, count_max: int, begin_ms: int, end_ms: int, after: int = -1
    ) -> FoundByKey:
        """Return records of a topic with a key, stored within a span of time and after a log
        offset, newest first."""
        state = self._state
        index = state.index
        found = FoundByKey([], 0, 0)
        if index is None:
            return found
        state.dispatcher.flush_keys()
        if index.files:
            found.last_ms = index.files[-1].end_ms
            found.last_log_offset = index.files[-1].end_log_offset
        count_max = min(count_max, state.settings.query_messages_max)
        size = 0
        seen: set[int] = set()
        code = key_hash(java_hash(f"{topic}#"), key)
        for log_offset in index.find(code, begin_ms=begin_ms, end_ms=end_ms, after=after):
            if len(found.records) >= count_max or size >= _QUERY_SIZE_MAX:
                break
            if log_offset in seen:
                continue
            seen.add(log_offset)
            record = self.record_at(log_offset)
            if record is not None and self._matches_query(record, topic, key, begin_ms, end_ms):
                found.records.append(record)
                size += len(record)
        return found

    def _matches_query(
        self, record: bytes, topic: str, key: str, begin_ms: int, end_ms: int
    ) -> bool:
        """Whether a record really has the key and the time: hashes collide. The arguments are
        positional, for speed."""
        try:
            message = decode_record(record)
        except CorruptRecord:
            return False
        properties = message.properties
        if self._state.deleted.covers(topic, message.log_offset, message.stored_ms):
            return False
        return (
            message.topic == topic
            and begin_ms <= message.stored_ms <= end_ms
            and (
                properties.get(Property.UNIQ_KEY) == key
                or key in split_keys(properties.get(Property.KEYS, ""))
            )
        )
