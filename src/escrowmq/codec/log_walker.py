"""Walks through a log: complete records, damage between them, and the log's end.

All code that reads a log uses it: a start, the check of a store, a pipeline over files. Bodies and
properties may contain anything, even bytes that look like records. So a position counts as the
start of a record only if trusted data leads there: the record before it, a segment's start, or a
queue entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Generic, NamedTuple, Protocol

import msgspec

from escrowmq.codec.log_records import ParseResult, R, ScannedRecord, parse_records
from escrowmq.codec.record_layout import (
    FILLER_SIZE,
    FRONT,
    HEAD_V4,
    HEAD_V6,
    HEADS,
    HOSTS_V6,
    LOG_OFFSET,
    LOG_OFFSET_AT,
    MAGIC_AT,
    MAGIC_FILLER,
    MAGICS,
    PLACED,
    PROPERTIES_SIZE,
    RECORD_SIZE_MIN,
    SIZE,
    topic_size_width,
)

CHUNK_SIZE: Final = 4 * 1024 * 1024
NO_END: Final = 1 << 62
_SECTOR_SIZE: Final = 512
_MARKS: Final = tuple(SIZE.pack(magic) for magic in MAGICS)
_FRONT_MIN: Final = 4
"""The least number of zeros in a sector that proves an unwritten one. Fewer bytes of a record in a
sector of their own may be zeros even in a complete record."""

PointsToRecord = Callable[[tuple[str, int], int, tuple[int, int]], bool]
"""Returns whether the queue entry of (topic, queue id) at a queue offset points to a record (log
offset, size)."""


class SegmentedLog(Protocol):
    """A log in segments, each of which begins with a record. Implemented by
    `store.segment.Segments`."""

    @property
    def starts(self) -> list[int]:
        """The starts of the existing segments, in order."""

    @property
    def end(self) -> int:
        """The end of the last segment."""

    def start_of(self, position: int) -> int:
        """Return the start of the segment that holds a position."""

    def end_of(self, position: int) -> int:
        """Return the end of the segment that holds a position."""

    def has(self, position: int) -> bool:
        """Whether the segment that holds a position exists."""

    def read(self, position: int, size: int) -> bytes:
        """Return bytes from a position on; fewer where the segment ends."""

    def next_data_position(self, position: int) -> int:
        """Return the first position from this one on, in the same segment, that may contain data;
        the segment's end if none does."""


class LogDamage(msgspec.Struct, frozen=True):
    """A range of the log without a readable record."""

    log_offset: int
    size: int
    reason: str


class LogRange(NamedTuple, Generic[R]):
    """A range of a log, and the result of parsing it."""

    log_offset: int
    data: bytes
    found: ParseResult[R]


class _RecordHead(NamedTuple):
    """The fields of a record's head by which it is compared with a queue entry."""

    size: int
    queue_id: int
    queue_offset: int
    topic: bytes
    properties_at: int
    """The position after the topic, where the properties' size is."""


def claimed_record_end(log: SegmentedLog, position: int) -> int | None:
    """Return the end of the record that seems to begin at this position; None if there is no head
    of a record."""
    front = log.read(position, PLACED.size)
    if len(front) < PLACED.size:
        return None
    size, magic, own, _ = PLACED.unpack(front)
    left = log.end_of(position) - position - FILLER_SIZE
    if magic not in MAGICS or own != position or not RECORD_SIZE_MIN <= size <= left:
        return None
    end: int = position + size
    return end


class LogWalker:
    """Walks once through a log, from the start of a record to the log's end. `leads_to` tells
    whether a queue entry points to a record, which finds the next record after damage. Without
    queues (None), the walker guesses by how the bytes look."""

    def __init__(
        self,
        log: SegmentedLog,
        *,
        durable_offset: int = NO_END,
        checks_body: bool = True,
        has_crc: bool = False,
        leads_to: PointsToRecord | None = None,
    ) -> None:
        self._log = log
        self._durable_offset = durable_offset
        self._leads_to = leads_to
        self._judge = partial(parse_records, has_crc=has_crc)
        self._take = partial(parse_records, has_crc=has_crc, checks_body=checks_body)
        self.end_offset = 0
        self.stored_ms = 0
        self.records_count = 0
        self.damaged: list[LogDamage] = []
        self.cut_reason = ""

    def record_batches(self, start: int) -> Iterator[list[ScannedRecord]]:
        """Yield the complete records in order. Afterwards, `end_offset` is where to append."""
        for _, _, found in self.ranges(start, self._take):
            if found.records:
                yield found.records

    def ranges(
        self, start: int, parse: Callable[[bytes, int], ParseResult[R]]
    ) -> Iterator[LogRange[R]]:
        """Yield the log in ranges, each with what `parse` finds in it: records, or the filler at a
        segment's end. Afterwards, `end_offset` is where to append."""
        log, position = self._log, start
        while position < log.end:
            if not log.has(position):
                after = self._resume_after_damage(position, "the segment is missing")
                if after is None:
                    break
                position = after
            base, following = position, log.end_of(position)
            data = log.read(base, min(CHUNK_SIZE, following - base))
            found = parse(data, base)
            if not found.size and len(data) < found.wanted_size <= following - base:
                data = log.read(base, found.wanted_size)  # one record, larger than a chunk
                found = parse(data, base)
            position = following if found.is_filler else base + found.size
            if found.size:
                self.stored_ms = found.stored_ms
                self.records_count += len(found.records)
            if found.size or found.is_filler:
                yield LogRange(base, data, found)
            if found.is_filler or (found.size and not found.reason):
                continue  # where a chunk ends within a record, it is read again with the next one
            after = self._resume_after_damage(
                position, found.reason or "a record that is not whole"
            )
            if after is None:
                break
            position = after
        self.end_offset = position

    def _resume_after_damage(self, position: int, reason: str) -> int | None:
        """Record the damage at a position, and return where the walk continues; None at the log's
        end."""
        after = self.next_record(position + 1, claimed=self._trusted_record_end(position))
        if after is None:
            self.cut_reason = reason
            return None
        if position >= self._durable_offset and self._is_unwritten(position, after):
            # Data written after the last sync reaches a disk in any order when the power fails.
            # Keeping what follows a lost write would show an effect without its cause.
            self.cut_reason = f"{reason}; written before, but never synced"
            return None
        self.damaged.append(LogDamage(position, after - position, reason))
        return after

    def _is_unwritten(self, position: int, after: int) -> bool:
        """Whether a range looks as if a write had not reached the disk: zeros at its start, at its
        end, or in all its bytes of a sector. Flipped bits look different."""
        end = min(after, self._log.end_of(position))
        data = self._log.read(position, min(end - position, CHUNK_SIZE))
        if not any(data[:8]) or not any(data[-8:]):
            return True
        border = -position % _SECTOR_SIZE
        if 0 < border < _FRONT_MIN and self._lacks_first_bytes(position, border):
            return True
        sectors = [data[:border]]
        sectors += [data[at : at + _SECTOR_SIZE] for at in range(border, len(data), _SECTOR_SIZE)]
        return any(len(sector) >= _FRONT_MIN and not any(sector) for sector in sectors)

    def _lacks_first_bytes(self, position: int, count: int) -> bool:
        """Whether a record is complete except for the first bytes of its size, which are zeros and
        in another sector than the rest."""
        head = self._read_head(position)
        if head is None:
            return False
        behind = head.properties_at + PROPERTIES_SIZE.size
        rest = self._log.read(head.properties_at, PROPERTIES_SIZE.size)
        size = behind - position + int.from_bytes(rest, "big")
        left = self._log.end_of(position) - position
        if head.size >= size or not RECORD_SIZE_MIN <= size <= left:
            return False
        low_bits = (SIZE.size - count) * 8
        return head.size == size & ((1 << low_bits) - 1)

    def _trusted_record_end(self, position: int) -> int | None:
        """Return the end of the damaged record at a position, by its size field, if a complete
        record or a segment begins there. Mostly it does, because most damage is in the body, the
        largest part."""
        log = self._log
        end = claimed_record_end(log, position)
        if end is None:
            return None
        behind = log.read(end, FRONT.size)
        if len(behind) == FRONT.size and FRONT.unpack(behind)[1] == MAGIC_FILLER:
            end = log.end_of(position)
        return end if self._is_record(end) else None

    def next_record(
        self, position: int, *, claimed: int | None = None, before: int = NO_END
    ) -> int | None:
        """Return the start of the next complete record: where a queue entry points, at a segment's
        start, or where the damaged record ends by its own size. Without queues: the first that
        looks like a record and is not older than those before it. Return None at the log's end."""
        goes_by_looks = self._leads_to is None and claimed is None
        for start in self._log.starts:
            if self._log.end_of(start) <= position:
                continue
            for candidate in self._possible_records(max(position, start), before):
                is_proven = candidate in (start, claimed) or self._has_queue_entry(candidate)
                if is_proven and self._is_record(candidate):
                    return candidate
                if goes_by_looks and self._is_record(candidate, from_ms=self.stored_ms):
                    return candidate
        return None

    def _is_record(self, position: int, *, from_ms: int = 0) -> bool:
        front = self._log.read(position, SIZE.size)
        if len(front) < SIZE.size:
            return False
        (size,) = SIZE.unpack(front)
        if not RECORD_SIZE_MIN <= size <= self._log.end_of(position) - position:
            return False
        found = self._judge(self._log.read(position, size), position)
        return bool(found.records) and found.records[0].stored_ms >= from_ms

    def _has_queue_entry(self, position: int) -> bool:
        """Whether a queue entry points to what looks like a record's head at this position. No body
        is read."""
        if self._leads_to is None:
            return False
        head = self._read_head(position)
        if head is None:
            return False
        place = (head.topic.decode("utf-8", "replace"), head.queue_id)
        return self._leads_to(place, head.queue_offset, (position, head.size))

    def _read_head(self, position: int) -> _RecordHead | None:
        data = self._log.read(position, HEAD_V6.size)
        if len(data) < HEAD_V4.size:
            return None
        sys_flag: int = PLACED.unpack_from(data)[3]
        layout = HEADS[sys_flag & HOSTS_V6]
        if len(data) < layout.size:
            return None
        size, magic, _, queue_id, queue_offset, _, _, _, body_size = layout.walked.unpack_from(data)
        width = topic_size_width(magic)
        topic_at = position + layout.size + body_size
        length = int.from_bytes(self._log.read(topic_at, width), "big")
        topic = self._log.read(topic_at + width, length)
        return _RecordHead(size, queue_id, queue_offset, topic, topic_at + width + length)

    def _possible_records(self, position: int, before: int) -> Iterator[int]:
        """Yield positions in one segment that have a magic and the right log offset."""
        end = min(self._log.end_of(position), before + PLACED.size)
        while position < end:
            position, data = next_data(self._log, position, end)
            if not data:
                return
            for at in _magic_positions(data):
                place = at - MAGIC_AT
                if 0 <= place <= len(data) - PLACED.size:
                    (own,) = LOG_OFFSET.unpack_from(data, place + LOG_OFFSET_AT)
                    if own == position + place < before:
                        yield position + place
            if position + len(data) >= end:
                return
            position += len(data) - HEAD_V4.size  # a head may lie across the chunks' border


def next_data(log: SegmentedLog, position: int, end: int) -> tuple[int, bytes]:
    """Return the position and bytes of the next chunk of a segment that is not all zeros; no bytes
    at the end."""
    while position < end and log.has(position):
        # A magic may begin just before the data that a block holds.
        position = max(position, min(log.next_data_position(position), end) - MAGIC_AT)
        data = log.read(position, min(CHUNK_SIZE, end - position))
        if any(data[:_SECTOR_SIZE]) or data.count(0) != len(data):
            return position, data
        position += max(len(data) - HEAD_V4.size, 1) if position + len(data) < end else len(data)
    return end, b""


def _magic_positions(data: bytes) -> Iterator[int]:
    """Yield the positions of records' magic numbers, in order."""
    ahead = [(at, mark) for mark in _MARKS if (at := data.find(mark)) >= 0]
    while ahead:
        at, mark = nearest = min(ahead)
        yield at
        ahead.remove(nearest)
        if (following := data.find(mark, at + 1)) >= 0:
            ahead.append((following, mark))
