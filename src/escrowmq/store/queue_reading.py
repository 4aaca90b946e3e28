"""Reads messages of a queue: chooses the units within all limits, and reads the records they lead
to."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final

from escrowmq.base.delay_levels import parse_delay_levels
from escrowmq.base.message import SysFlag
from escrowmq.base.runs import RUN, split_runs
from escrowmq.base.store_settings import StoreSettings
from escrowmq.codec.log_records import match_queue_entries, parse_records, record_fault
from escrowmq.codec.record_layout import SIZE
from escrowmq.codec.store_entries import ENTRY, ENTRY_SIZE
from escrowmq.lane import native
from escrowmq.store.commit_log import CommitLog
from escrowmq.store.consume_queue import GAP_SIZE, ConsumeQueue
from escrowmq.store.results import GetResult, GetStatus
from escrowmq.store.scanned import UnitTagsCodes
from escrowmq.store.unit_runs import CODES_MAX, RECORDS_SIZE_MAX, encode_codes, select_runs

_MEND_SIZE_MAX: Final = 4 * 1024 * 1024
_DAMAGED_MAX: Final = 10_000
_LOG_OFFSET: Final = struct.Struct(">q")


ReadRequest = tuple[str, int, int, int, int, frozenset[int] | None]
"""A request to read: topic, queue, offset, the most messages, the most bytes, and the tags codes to
select (None selects any)."""

_UnitSelection = tuple[bytes, int, frozenset[int] | None, int, int]
"""The arguments of `runs_of`."""

Stretch = tuple[list[bytes], int, int, int, int, int]
"""A result of reading: chunks of records, their number and size, the next offset, and the bounds of
the queue."""


class QueueReader:
    """Reads queues. Records that this process wrote recently are trusted; older ones are read from
    the disk and verified before they are returned."""

    def __init__(
        self,
        log: CommitLog,
        queues: Mapping[tuple[str, int], ConsumeQueue],
        settings: StoreSettings,
    ) -> None:
        self._log = log
        self._queues = queues
        self._settings = settings
        self._codes = UnitTagsCodes(parse_delay_levels(settings.delay_levels))
        self._recent_size = settings.memory_size * settings.memory_percent // 100
        self.trusted_from = 0
        self.mended_count = 0
        self.damaged: dict[int, str] = {}
        """Unreadable records that were requested: the reason, by log offset."""

    def trust_from(self, log_offset: int) -> None:
        """Trust the records from a log offset on: this process has written them, or read and
        verified them."""
        self.trusted_from = log_offset

    def get(  # noqa: PLR0913 - from where, and all that limits it
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        *,
        count_max: int = 32,
        size_max: int = RECORDS_SIZE_MAX,
        codes: frozenset[int] | None = None,
        accept: Callable[[bytes], bool] | None = None,
        tested_max: int = 0,
    ) -> GetResult:
        """Return records of a queue from an offset on that have one of these tags codes (None:
        any), and for which `accept` returns true. `accept` is called for at most `tested_max`
        records (0: no limit). Unreadable records are skipped."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            # RocketMQ creates a queue when it is read, and so never answers that there is none.
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
        low, high = queue.min, queue.end
        if not low <= queue_offset < high:
            return self._result_outside(queue, queue_offset)
        count_max, size_max, units_max, is_behind = self._limits(
            queue, queue_offset, count_max, size_max, codes, accept
        )
        if tested_max:
            units_max = min(units_max, tested_max)
        units = queue.units_of_file(queue_offset, units_max)
        if not units:
            per_file = queue.files.segment_size // ENTRY_SIZE
            following = (queue_offset // per_file + 1) * per_file
            return GetResult(GetStatus.OFFSET_FOUND_NULL, following, low, high)
        if accept is None:
            found = select_runs(units, queue_offset, codes, count_max, size_max)
            # If a unit is impossible or leads to no record, each is read on its own below.
            if found is not None:
                runs, offsets, following, size = found
                chunks = self._log.read_runs(runs) if runs else []
                status = GetStatus.FOUND if runs else GetStatus.NO_MATCHED_MESSAGE
                got = GetResult(
                    status, following, low, high,
                    chunks, len(offsets), size, offsets, is_behind,
                )  # fmt: skip
                (first_log_offset,) = _LOG_OFFSET.unpack_from(units)
                if first_log_offset >= self.trusted_from or self._are_valid_records(
                    got, runs, queue
                ):
                    return got
        got = GetResult(GetStatus.FOUND, queue_offset, low, high, is_behind=is_behind)
        self._collect_checked(queue, got, units, count_max, size_max, codes, accept)
        return got

    def build_reply(
        self, wish: ReadRequest, pieces: tuple[bytes, ...], opaque: int
    ) -> tuple[bytes, int, int, int] | None:
        """Build the reply frame of a pull from recent, trusted messages, in the native lane.
        `pieces` are the frame's other parts. Return the frame, the number and size of its messages,
        and the next offset. Return None if there are no such messages, or they are in two files."""
        found = self._trusted_units(wish)
        if found is None or native.reply_with_runs is None:
            return None
        queue, log_offset, (units, queue_offset, codes, count_max, size_max) = found
        memory = self._log.memory_at(log_offset)
        if memory is None or (codes is not None and len(codes) > CODES_MAX):
            return None
        return native.reply_with_runs(
            units, queue_offset, encode_codes(codes), count_max, size_max, *memory, pieces, opaque,
            queue.min, queue.end,
        )  # fmt: skip

    def _trusted_units(self, wish: ReadRequest) -> tuple[ConsumeQueue, int, _UnitSelection] | None:
        """Return a queue, the log offset of the first record, and the arguments for choosing units;
        None if the record is not trusted and recent."""
        topic, queue_id, queue_offset, count_max, size_max, codes = wish
        queue = self._queues.get((topic, queue_id))
        if queue is None or not queue.min <= queue_offset < queue.end:
            return None
        settings = self._settings
        count_max, size_max, units_max = self._capped_limits(
            settings.read_count_max, settings.read_size_max, count_max, size_max, codes
        )
        units = queue.units_of_file(queue_offset, units_max)
        if len(units) < ENTRY_SIZE:
            return None
        (log_offset,) = _LOG_OFFSET.unpack_from(units)
        if log_offset < self.trusted_from or log_offset < self._log.end_offset - self._recent_size:
            return None
        return queue, log_offset, (units, queue_offset, codes, count_max, size_max)

    def _result_outside(self, queue: ConsumeQueue, queue_offset: int) -> GetResult:
        low, high = queue.min, queue.end
        if high == 0:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
        if queue_offset < low:
            return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high)
        if queue_offset == high:
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, queue_offset, low, high)
        return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high)

    def _limits(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        count_max: int,
        size_max: int,
        codes: frozenset[int] | None,
        accept: Callable[[bytes], bool] | None,
    ) -> tuple[int, int, int, bool]:
        """Return the most messages, bytes and units to read, and whether the records are old. The
        arguments are positional, for speed: they are those of `get`."""
        is_behind = False
        if self._log.end_offset > self._recent_size:
            unit = queue.unit(queue_offset)
            is_behind = unit is not None and self._log.end_offset - unit[0] > self._recent_size
        settings = self._settings
        if is_behind:
            count, size = settings.read_old_count_max, settings.read_old_size_max
        else:
            count, size = settings.read_count_max, settings.read_size_max
        choice = accept if codes is None else codes
        return *self._capped_limits(count, size, count_max, size_max, choice), is_behind

    def _capped_limits(
        self, count: int, size: int, count_max: int, size_max: int, choice: object
    ) -> tuple[int, int, int]:
        """Return the most messages, bytes and units to read, from allowed and requested numbers. It
        avoids `min` and `max`, which touch thirty cache lines that may be cold."""
        if count_max < count:
            count = max(count_max, 1)
        if size_max < size:
            size = size_max
        if size > RECORDS_SIZE_MAX:
            size = RECORDS_SIZE_MAX
        if choice is None:
            return count, size, count
        return count, size, max(self._settings.filter_scan_size // ENTRY_SIZE, count_max)

    def _are_valid_records(self, got: GetResult, runs: bytes, queue: ConsumeQueue) -> bool:
        topic, has_crc = queue.topic.encode(), self._settings.appends_crc
        chunks, offsets = got.chunks, got.queue_offsets
        if len(chunks) == 1:
            (data,) = chunks
            are_whole = native.are_whole
            if are_whole is not None and are_whole(data, runs, topic, offsets, has_crc):
                return True
            chunks = split_runs(data, runs)
        nth = 0
        for (start, _), chunk in zip(RUN.iter_unpack(runs), chunks, strict=True):
            nth = match_queue_entries(chunk, start, topic, offsets, nth, has_crc)
            if nth < 0:
                return False
        return nth == got.count

    def _collect_checked(
        self,
        queue: ConsumeQueue,
        got: GetResult,
        units: bytes,
        count_max: int,
        size_max: int,
        codes: frozenset[int] | None,
        accept: Callable[[bytes], bool] | None,
    ) -> None:
        """Read units whose records must be verified one by one, and add them to the result."""
        at, total, lost = got.next_offset, 0, 0
        topic = queue.topic.encode()
        found: list[int] = []
        got.chunks, got.queue_offsets = [], found
        for log_offset, size, code in ENTRY.iter_unpack(units):
            if size != GAP_SIZE and (codes is None or code in codes):
                if found and total + size > size_max:
                    break
                record = self.read_record(log_offset, size, queue_offset=at, topic=topic)
                if record is None:
                    record = self._repair_unit(queue, at, topic)
                if record is None:
                    lost += 1
                elif accept is None or accept(record):
                    got.chunks.append(record)
                    found.append(at)
                    total += size
            at += 1
            if len(found) >= count_max:
                break
        got.next_offset, got.size, got.count = at, total, len(found)
        if not found:
            got.status = GetStatus.MESSAGE_WAS_REMOVING if lost else GetStatus.NO_MATCHED_MESSAGE

    def _repair_unit(self, queue: ConsumeQueue, queue_offset: int, topic: bytes) -> bytes | None:
        """Search for the record of a wrong unit between the records of its neighbours, and correct
        the unit. Return the record; None if it was not found."""
        before, after = queue.unit(queue_offset - 1), queue.unit(queue_offset + 1)
        start = before[0] + before[1] if before is not None else self._log.min_offset
        end = after[0] if after is not None else self._log.end_offset
        if not 0 < end - start <= _MEND_SIZE_MAX:
            return None
        found = parse_records(self._log.read(start, end - start), start)
        for record in found.records:
            if (record.queue_offset, record.queue_id) == (queue_offset, queue.queue_id) and (
                record.topic == topic and not record.sys_flag & SysFlag.PREPARED
            ):
                code = self._codes.code_of(record, is_schedule=queue.is_schedule)
                queue.write(queue_offset, ENTRY.pack(record.log_offset, record.size, code))
                self.mended_count += 1
                return self._log.read(record.log_offset, record.size)
        return None

    def read_record(
        self,
        log_offset: int,
        size: int,
        *,
        queue_offset: int | None = None,
        topic: bytes | None = None,
    ) -> bytes | None:
        """Return the record that a unit leads to. Return None, and remember the damage, if it is
        unreadable."""
        record = self._log.read(log_offset, size) if 0 < size <= RECORDS_SIZE_MAX else b""
        if log_offset >= self.trusted_from and int.from_bytes(record[: SIZE.size], "big") == size:
            return record
        reason = record_fault(
            record,
            log_offset,
            queue_offset=queue_offset,
            topic=topic,
            has_crc=self._settings.appends_crc,
        )
        if reason is None:
            return record
        if len(self.damaged) < _DAMAGED_MAX:
            self.damaged.setdefault(log_offset, reason)
        return None
