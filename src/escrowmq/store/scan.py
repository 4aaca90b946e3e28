"""Walking the log: whole records, damage between them, and where it ends.

A record is whole when its magic fits, its own log offset is where it stands, its fields add up to
its size, and its body's CRC is right. The CRC property that RocketMQ may append to a record is
believed only of a store that is set to write it: elsewhere it is what some client sent.

Bodies and properties are whatever clients like, records in records among it. So a place is taken
for the beginning of a record only when something of our own leads there: the record before it, a
segment's start, a unit of a queue.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple
from zlib import crc32

from escrowmq.base.ports import SparseFile
from escrowmq.codec.properties import decode_properties
from escrowmq.codec.record import (
    FILLER_SIZE,
    MAGIC_FILLER,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_MIN,
)
from escrowmq.store.answers import Damage
from escrowmq.store.crc import CRC_MARK, CRC_PROPERTY_SIZE, crc_fits
from escrowmq.store.segment import Segments

CHUNK_SIZE: Final = 4 * 1024 * 1024
_SECTOR_SIZE: Final = 512
_HEAD_SIZE: Final = 88
_V6_EXTRA: Final = 12
_BORN_V6: Final = 0x10
_STORE_V6: Final = 0x20
_V6: Final = _BORN_V6 | _STORE_V6
# size, magic, CRC, queue id, queue offset, log offset, sysFlag, store time, body size
_HEADS: Final = {
    flags: struct.Struct(
        f">IIIi4xqqi{16 + (_V6_EXTRA if flags & _BORN_V6 else 0)}xq"
        f"{20 + (_V6_EXTRA if flags & _STORE_V6 else 0)}xi"
    )
    for flags in (0, _BORN_V6, _STORE_V6, _BORN_V6 | _STORE_V6)
}
_MAGICS: Final = (MAGIC_V1.to_bytes(4, "big"), MAGIC_V2.to_bytes(4, "big"))
_FILLER: Final = MAGIC_FILLER.to_bytes(4, "big")
_LOG_OFFSET_AT: Final = 28
_OWN_OFFSET: Final = slice(_LOG_OFFSET_AT, _LOG_OFFSET_AT + 8)
NO_END: Final = 1 << 62

LeadsTo = Callable[[tuple[str, int], int, tuple[int, int]], bool]
"""Whether the unit of a queue (topic, queue id) at a queue offset leads to a record (log offset,
size)."""


class Scanned(NamedTuple):
    """What recovery wants to know of a record."""

    log_offset: int
    size: int
    queue_id: int
    queue_offset: int
    sys_flag: int
    stored_ms: int
    topic: bytes
    properties: bytes


class Parsed(NamedTuple):
    """Records of a stretch, how many bytes they take, and why the walk stopped there: an empty
    reason means that the stretch ended, in a record of `wanted_size` perhaps."""

    records: list[Scanned]
    size: int
    reason: str
    is_filler: bool = False
    wanted_size: int = 0


def parse(data: bytes, base: int, *, checks_body: bool = True, has_crc: bool = False) -> Parsed:
    """Walk the records of a stretch that starts at log offset `base`.

    What is usual is judged here, anything else by `_judge`. Measured: 1.5 us a record of 300
    bytes with its CRC."""
    found: list[Scanned] = []
    at, end = 0, len(data)
    unpack, new = _HEADS[0].unpack_from, tuple.__new__
    while at + FILLER_SIZE <= end:
        if at + _HEAD_SIZE <= end:
            size, magic, crc, queue_id, queue_offset, log_offset, sys_flag, stored_ms, body_size = (
                unpack(data, at)
            )
            body_at = at + _HEAD_SIZE
            body_end, record_end = body_at + body_size, at + size
            if (
                magic == MAGIC_V1
                and log_offset == base + at
                and not sys_flag & _V6
                and body_size >= 0
                and body_end + 3 <= record_end <= end
                and (not checks_body or crc32(data[body_at:body_end]) & 0x7FFFFFFF == crc)
            ):
                topic_end = body_end + 1 + data[body_end]
                properties_at = topic_end + 2
                topic = data[body_end + 1 : topic_end]
                if (
                    properties_at <= record_end
                    and topic.isascii()
                    and properties_at + (data[topic_end] << 8 | data[topic_end + 1]) == record_end
                    and not (
                        has_crc
                        and data[record_end - CRC_PROPERTY_SIZE : record_end - 11] == CRC_MARK
                    )
                    and (data[record_end - 1] or properties_at == record_end)
                ):
                    properties = data[properties_at:record_end]
                    fields = (
                        log_offset, size, queue_id, queue_offset, sys_flag, stored_ms, topic,
                        properties,
                    )  # fmt: skip
                    found.append(new(Scanned, fields))
                    at = record_end
                    continue
        judged = _judge(data, at, base, checks_body=checks_body, has_crc=has_crc)
        if isinstance(judged, Parsed):
            return judged._replace(records=found, size=at)
        found.append(judged)
        at += judged.size
    return Parsed(found, at, "")


def _judge(
    data: bytes, at: int, base: int, *, checks_body: bool, has_crc: bool
) -> Scanned | Parsed:
    """One record of any kind, or what is there instead."""
    size, magic = (
        int.from_bytes(data[at : at + 4], "big"),
        int.from_bytes(data[at + 4 : at + 8], "big"),
    )
    if magic == MAGIC_FILLER:
        return Parsed([], 0, "", is_filler=True)
    if magic not in (MAGIC_V1, MAGIC_V2):
        return Parsed([], 0, f"magic {magic:#010x}" if magic else "nothing written")
    own = int.from_bytes(data[at + _LOG_OFFSET_AT : at + _LOG_OFFSET_AT + 8], "big")
    if at + _HEAD_SIZE <= len(data) and own != base + at:
        return Parsed([], 0, f"the record says that it stands at {own}")
    if size < RECORD_SIZE_MIN or at + size > len(data):
        reason = f"record size {size}" if size < RECORD_SIZE_MIN else ""
        return Parsed([], 0, reason, wanted_size=size)
    sys_flag = _HEADS[0].unpack_from(data, at)[6]
    head = _HEADS[sys_flag & _V6]
    if head.size > size:
        return Parsed([], 0, f"record size {size}")
    _, _, crc, queue_id, queue_offset, _, _, stored_ms, body_size = head.unpack_from(data, at)
    body_at, record_end = at + head.size, at + size
    body_end = body_at + body_size
    width = 2 if magic == MAGIC_V2 else 1
    if body_size < 0 or body_end + width + 2 > record_end:
        return Parsed([], 0, f"body size {body_size} in a record of {size} bytes")
    if checks_body and body_size and crc32(data[body_at:body_end]) & 0x7FFFFFFF != crc:
        return Parsed([], 0, "the body's CRC is wrong")
    topic_at = body_end + width
    topic_end = topic_at + int.from_bytes(data[body_end:topic_at], "big")
    properties = data[topic_end + 2 : record_end]
    if topic_end + 2 > record_end or (
        int.from_bytes(data[topic_end : topic_end + 2], "big") != len(properties)
    ):
        return Parsed([], 0, "its fields do not add up to its size")
    if properties.endswith(b"\0"):
        # The last property ends with 0x02. Zeros are what a torn write leaves.
        return Parsed([], 0, "its properties end in zeros")
    is_crc = has_crc and properties[-CRC_PROPERTY_SIZE:].startswith(CRC_MARK)
    if is_crc and not crc_fits(data, at, record_end):
        return Parsed([], 0, "the record's CRC property is wrong")
    topic = data[topic_at:topic_end]
    if not topic.isascii() and not _is_text(topic):
        return Parsed([], 0, "its topic is not UTF-8")
    return Scanned(own, size, queue_id, queue_offset, sys_flag, stored_ms, topic, properties)


def _is_text(topic: bytes) -> bool:
    try:
        topic.decode()
    except UnicodeDecodeError:
        return False
    return True


def value_of(properties: bytes, mark: bytes) -> bytes:
    """The value of one property, given as name and 0x01; empty without it. The last one wins."""
    at = properties.rfind(mark)
    if at < 0:
        return b""
    if at and properties[at - 1] != 2:
        found = decode_properties(properties).get(mark[:-1].decode(), "")
        return found.encode("utf-8", "surrogatepass")
    end = properties.find(b"\x02", at)
    return properties[at + len(mark) : end if end >= 0 else len(properties)]


def check_record(
    record: bytes,
    log_offset: int,
    *,
    queue_offset: int | None = None,
    topic: bytes | None = None,
    has_crc: bool = False,
) -> str | None:
    """Why bytes are not the whole record that should stand at an offset; None when they are."""
    found = parse(record, log_offset, has_crc=has_crc)
    if found.size != len(record) or not found.records:
        return found.reason or f"{len(record)} bytes are not a record"
    if queue_offset is not None and found.records[0].queue_offset != queue_offset:
        return f"the record is the queue's {found.records[0].queue_offset}, not {queue_offset}"
    if topic is not None and found.records[0].topic != topic:
        return f"the record is of topic {found.records[0].topic!r}, not {topic!r}"
    return None


def is_whole(
    run: bytes,
    base: int,
    topic: bytes,
    queue_offsets: list[int],
    first: int,
    has_crc: bool,
) -> int:
    """Whether a run of records is what units promised: the number of the queue offset behind the
    run's last one, counted from `first`; -1 when a record is not whole or not the queue's.

    Half of what `parse` takes: names and properties are not taken out. Positional: it is called
    once a run."""
    at, end = 0, len(run)
    unpack = _HEADS[0].unpack_from
    while at < end:
        if at + _HEAD_SIZE > end or first >= len(queue_offsets):
            return -1
        size, magic, crc, _, queue_offset, log_offset, sys_flag, _, body_size = unpack(run, at)
        if (
            log_offset != base + at
            or queue_offset != queue_offsets[first]
            or size < RECORD_SIZE_MIN
            or at + size > end
            or sys_flag & (_V6)
            or magic != MAGIC_V1
            or (has_crc and run[at + size - CRC_PROPERTY_SIZE : at + size - 11] == CRC_MARK)
        ):
            # Rare kinds take the long way.
            record = run[at : at + size]
            if check_record(
                record,
                base + at,
                queue_offset=queue_offsets[first],
                topic=topic,
                has_crc=has_crc,
            ):
                return -1
        else:
            body_end = at + _HEAD_SIZE + body_size
            if body_size < 0 or body_end + 3 > at + size:
                return -1
            topic_end = body_end + 1 + run[body_end]
            if (
                topic_end + 2 > at + size
                or topic_end + 2 + (run[topic_end] << 8 | run[topic_end + 1]) != at + size
                or run[body_end + 1 : topic_end] != topic
                or crc32(run[at + _HEAD_SIZE : body_end]) & 0x7FFFFFFF != crc
            ):
                return -1
        at += max(size, 1)
        first += 1
    return first


class LogScan:
    """One walk over the log, from an offset where a record starts to where nothing follows.

    `leads_to` says whether a unit of a queue leads to a record: what damage is passed over by. None
    when there is no queue at all; then looks must do."""

    def __init__(
        self,
        segments: Segments,
        *,
        durable_offset: int = NO_END,
        checks_body: bool = True,
        has_crc: bool = False,
        leads_to: LeadsTo | None = None,
    ) -> None:
        self._segments = segments
        self._durable_offset = durable_offset
        self._checks_body = checks_body
        self._has_crc = has_crc
        self._leads_to = leads_to
        self.end_offset = 0
        self.stored_ms = 0
        self.records_count = 0
        self.damaged: list[Damage] = []
        self.cut_reason = ""

    def batches(self, start: int) -> Iterator[list[Scanned]]:
        """Whole records in the log's order. Afterwards `end_offset` is where to append."""
        position = start
        segments = self._segments
        while position < segments.end:
            if not segments.has(position):
                after = self._resume(position, "the segment is missing")
                if after is None:
                    break
                position = after
            following = segments.start_of(position) + segments.segment_size
            data = segments.read(position, min(CHUNK_SIZE, following - position))
            found = self._parse(data, position, checks_body=self._checks_body)
            if found.records:
                position += found.size
                self.stored_ms = found.records[-1].stored_ms
                self.records_count += len(found.records)
                yield found.records
            if found.is_filler:
                position = following
                continue
            if found.records and not found.reason:
                continue  # the chunk ended within a record
            if self._is_larger(found, data, following - position):
                size = found.wanted_size
                single = self._parse(segments.read(position, size), position)
                if single.records:
                    position += single.size
                    self.stored_ms = single.records[-1].stored_ms
                    self.records_count += 1
                    yield single.records
                    continue
                found = single
            reason = found.reason or "a record that is not whole"
            after = self._resume(position, reason)
            if after is None:
                break
            position = after
        self.end_offset = position

    def _parse(self, data: bytes, base: int, *, checks_body: bool = True) -> Parsed:
        return parse(data, base, checks_body=checks_body, has_crc=self._has_crc)

    def _is_larger(self, found: Parsed, data: bytes, left: int) -> bool:
        return len(data) < found.wanted_size <= left

    def _resume(self, position: int, reason: str) -> int | None:
        """Where the walk goes on behind something that is not a record; None at the log's end."""
        after = self.next_record(position + 1, claimed=self._claimed_end(position))
        if after is None:
            self.cut_reason = reason
            return None
        if position >= self._durable_offset and self._is_unwritten(position, after):
            # What was written after the last sync reaches a disk in any order when the power
            # fails. To keep what lies behind a lost write would show an effect without its cause.
            self.cut_reason = f"{reason}; written before, but never synced"
            return None
        self.damaged.append(Damage(position, after - position, reason))
        return after

    def _is_unwritten(self, position: int, after: int) -> bool:
        """Whether a stretch looks as if a write had not reached the disk: zeros at its head, or
        at its end, or in all that it has of a sector. Flipped bits do not look so."""
        end = min(after, self._segments.start_of(position) + self._segments.segment_size)
        data = self._segments.read(position, min(end - position, CHUNK_SIZE))
        if not any(data[:8]) or not any(data[-8:]):
            return True
        border = -position % _SECTOR_SIZE
        sectors = [data[:border]]
        sectors += [data[at : at + _SECTOR_SIZE] for at in range(border, len(data), _SECTOR_SIZE)]
        # Fewer than 4 bytes of a record's head are zeros even when it is whole.
        return any(len(sector) >= 4 and not any(sector) for sector in sectors)

    def _claimed_end(self, position: int) -> int | None:
        """Where something that looks like the record of this place says that it ends, when a whole
        record does begin there: damage hits the body in most cases, which is the larger part."""
        segments = self._segments
        head = segments.read(position, _HEAD_SIZE)
        if len(head) < _HEAD_SIZE or head[4:8] not in _MAGICS:
            return None
        size, own = int.from_bytes(head[:4], "big"), int.from_bytes(head[_OWN_OFFSET], "big")
        following = segments.start_of(position) + segments.segment_size
        if own != position or not RECORD_SIZE_MIN <= size <= following - position - FILLER_SIZE:
            return None
        end = position + size
        if segments.read(end + 4, 4) == _FILLER:
            end = following
        return end if self._is_record(end) else None

    def next_record(self, position: int, *, claimed: int | None = None) -> int | None:
        """Where the next whole record stands: where a unit of a queue leads, at a segment's start,
        or where the damaged record before `claimed` that it ends. Without queues, the first that
        looks like a record and is no remnant: store times do not go back."""
        goes_by_looks = self._leads_to is None and claimed is None
        for start in self._segments.starts:
            if start + self._segments.segment_size <= position:
                continue
            for candidate in self._candidates(max(position, start)):
                is_proven = candidate in (start, claimed) or self._is_led_to(candidate)
                if is_proven and self._is_record(candidate):
                    return candidate
                if goes_by_looks and self._is_record(candidate, from_ms=self.stored_ms):
                    return candidate
        return None

    def _is_record(self, position: int, *, from_ms: int = 0) -> bool:
        size = int.from_bytes(self._segments.read(position, 4), "big")
        left = self._segments.start_of(position) + self._segments.segment_size - position
        if not RECORD_SIZE_MIN <= size <= left:
            return False
        found = self._parse(self._segments.read(position, size), position)
        return bool(found.records) and found.records[0].stored_ms >= from_ms

    def _is_led_to(self, position: int) -> bool:
        """Whether a unit leads to what looks like the head of a record: no body is read for it."""
        head = self._segments.read(position, _HEADS[_V6].size)
        if self._leads_to is None or len(head) < _HEADS[_V6].size:
            return False
        sys_flag = _HEADS[0].unpack_from(head)[6]
        layout = _HEADS[sys_flag & _V6]
        size, magic, _, queue_id, queue_offset, _, _, _, body_size = layout.unpack_from(head)
        width = 2 if magic == MAGIC_V2 else 1
        topic_at = position + layout.size + body_size
        length = int.from_bytes(self._segments.read(topic_at, width), "big")
        topic = self._segments.read(topic_at + width, length)
        place = (topic.decode("utf-8", "replace"), queue_id)
        return self._leads_to(place, queue_offset, (position, size))

    def _candidates(self, position: int) -> Iterator[int]:
        """Positions in one segment where a magic stands and the record's own offset fits."""
        end = self._segments.start_of(position) + self._segments.segment_size
        while position < end:
            position, data = self.next_data(position, end)
            if not data:
                return
            places = sorted(
                place - 4 for magic in _MAGICS for place in _places(data, magic) if place >= 4
            )
            for place in places:
                own = data[place + _LOG_OFFSET_AT : place + _LOG_OFFSET_AT + 8]
                if int.from_bytes(own, "big") == position + place:
                    yield position + place
            if position + len(data) >= end:
                return
            position += len(data) - _HEAD_SIZE  # a head may lie across the chunks' border

    def next_data(self, position: int, end: int) -> tuple[int, bytes]:
        """The next chunk that is not all zeros, and where it starts; an empty one at the end."""
        start = self._segments.start_of(position)
        file = self._segments.file(position)
        while position < end and file is not None:
            if isinstance(file, SparseFile):
                # A magic may begin just before the data that a block holds.
                position = max(position, min(start + file.data_from(position - start), end) - 4)
            data = file.read(position - start, min(CHUNK_SIZE, end - position))
            if any(data) if len(data) < _SECTOR_SIZE else data.count(0) != len(data):
                return position, data
            position += max(len(data) - _HEAD_SIZE, 1) if position + len(data) < end else len(data)
        return end, b""


def _places(data: bytes, wanted: bytes) -> Iterator[int]:
    at = data.find(wanted)
    while at >= 0:
        yield at
        at = data.find(wanted, at + 1)


def clear_behind(segments: Segments, end_offset: int) -> int:
    """Make everything behind the log's end zeros, so that no remnant can be taken for a record
    later; segments that lie wholly behind it are removed. How many bytes had something in them."""
    cleared = 0
    scan = LogScan(segments, durable_offset=0)
    while segments.last >= max(end_offset, 1) and segments.last > segments.start_of(end_offset):
        last = segments.last
        if scan.next_data(last, last + segments.segment_size)[1]:
            cleared += segments.segment_size
        segments.remove(last)
    file = segments.file(end_offset)
    if file is None:
        return cleared
    start = segments.start_of(end_offset)
    end, position = start + segments.segment_size, end_offset
    while position < end:
        position, data = scan.next_data(position, end)
        size = len(data.rstrip(b"\0"))
        if size:
            file.write(position - start, bytes(size))
            cleared += size
        position += len(data)
        if not data:
            break
    return cleared
