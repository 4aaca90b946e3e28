"""Rewrites what a failed sync may have lost, so that messages can be accepted again.

After a failed fdatasync, Linux may mark pages as clean that never reached the disk: a later
successful sync proves nothing for them. Usually they still hold what was written. So everything
written since it was last durable is read back, verified by the chain of records and their
checksums, and written again in place, which makes a sync bring it to the disk. If it cannot be read
back completely, only a restart can find out what is on the disk.

A start does the same within one boot of the machine (recovery.py): the process before it may have
ended because of such a sync."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

from escrowmq.base.effects import Sync
from escrowmq.base.ports import File
from escrowmq.codec.log_records import ScannedRecord, parse_records
from escrowmq.codec.record_layout import FILLER_SIZE
from escrowmq.errors import CorruptRecord, StorageError
from escrowmq.store.consume_queue import ConsumeQueue
from escrowmq.store.segment import Segments
from escrowmq.store.store_parts import StoreState

_log = logging.getLogger(__name__)

FIRST_RETRY_MS: Final = 1_000
"""The pause before the first attempt to repair; it doubles with each further one."""

AGAIN_MAX_MS: Final = 60_000
_NEVER_MS: Final = 1 << 62
_PAGE_SIZE: Final = 4096
_SECTOR_SIZE: Final = 512
_PART_SIZE: Final = 1024 * 1024
"""The size of the parts in which the log is rewritten, one each turn; a larger record is a part of
its own."""

_FIRST_READ_SIZE: Final = 4096


class SyncRepair:
    """Repairs what a failed sync may have lost: attempt after attempt, in small parts."""

    def __init__(
        self,
        state: StoreState,
        *,
        take_round: Callable[[int], tuple[File, ...]],
        given_up: Callable[[str], object],
    ) -> None:
        self._state = state
        self._take_round = take_round
        self._given_up = given_up
        self._attempt: Iterator[Sync | None] | None = None
        self._wanted: Sync | None = None
        self._is_wanted_taken = False
        self._wait_ms = FIRST_RETRY_MS
        self._due_ms = _NEVER_MS
        self.failures_count = 0
        self.lost = ""
        """Why a restart is needed; empty while repair is possible."""

    def sync_failed(self, now_ms: int) -> None:
        """Schedule a repair after a failed sync."""
        self.failures_count += 1
        self._schedule_next_try(now_ms)

    def _schedule_next_try(self, now_ms: int) -> None:
        self._attempt = self._wanted = None
        if not self.lost:
            self._due_ms = now_ms + self._wait_ms
            self._wait_ms = min(2 * self._wait_ms, AGAIN_MAX_MS)

    def wake(self, now_ms: int) -> None:
        """Continue the repair if it is time."""
        if now_ms < self._due_ms or self._wanted is not None:
            return
        if self._attempt is None:
            self._attempt = self._rewrite_all(now_ms)
        try:
            self._wanted = next(self._attempt)
            self._is_wanted_taken = False
        except CorruptRecord as error:
            self.lost, self._due_ms = str(error), _NEVER_MS
            self._given_up(self.lost)
        except (StorageError, OSError) as error:
            _log.info("not repaired yet: %s", error)
            self._schedule_next_try(now_ms)

    def wake_at_ms(self) -> int:
        """The time at which `wake` has something to do."""
        return _NEVER_MS if self._wanted is not None else self._due_ms

    def next_sync(self) -> Sync | None:
        """Return the sync that shows whether the disk works again, once everything is rewritten;
        else None."""
        if self._wanted is None or self._is_wanted_taken:
            return None
        self._is_wanted_taken = True
        return self._wanted

    def sync_finished(self) -> None:
        """Finish the repair: its sync has succeeded, so everything is durable."""
        self._attempt = self._wanted = None
        self._due_ms, self._wait_ms = _NEVER_MS, FIRST_RETRY_MS

    def _rewrite_all(self, now_ms: int) -> Iterator[Sync | None]:
        """Rewrite everything that is not known to be durable, then yield a sync of all of it.
        Nothing is stored meanwhile. Raises CorruptRecord if the data read are not what was
        written."""
        state, log = self._state, self._state.log
        segments, begin, end = log.segments, self._state.ends.durable, log.end_offset
        for position, size in verified_parts(
            segments, begin, end, has_crc=state.settings.appends_crc
        ):
            rewrite_log(segments, position, size)
            yield None
        for _ in rewrite_derived(state, state.durability.derived_offset):
            yield None
        state.queues.journal.write_again()
        state.checkpoint.write_again()
        # After all writes: the round holds only files that these have marked as unsynced.
        files = log_files(segments, begin, end) + self._take_round(now_ms)
        yield Sync(files, end)


def rewrite_derived(state: StoreState, log_offset: int) -> Iterator[None]:
    """Rewrite the units and index entries of records from a log offset on in place, in parts.
    Raises CorruptRecord if they are not what was written. Topics may be deleted between parts."""
    for queue in list(state.queues):
        parts = queue.write_again(log_offset)
        place = queue.topic, queue.queue_id
        while state.queues.by_key.get(place) is queue and next(parts, parts) is None:
            yield None
    if state.index is not None:
        yield from state.index.write_again(log_offset)


def newest_durable_segment(state: StoreState) -> int:
    """Return the start of the newest segment whose first record is old enough to be durable
    everywhere."""
    segments, safe_ms = state.log.segments, state.durability.durable_until_ms
    for start in reversed(segments.starts):
        data = segments.read(start, _FIRST_READ_SIZE)
        found = parse_records(data, start)
        if found.wanted_size:
            found = parse_records(segments.read(start, found.wanted_size), start)
        if found.records and 0 < found.records[0].stored_ms <= safe_ms:
            return start
    return segments.first_position


def maybe_unsynced_from(state: StoreState) -> int:
    """Return the offset of the first record that may not be durable everywhere, judged by its store
    time and found by the queues."""
    safe_ms, found = state.durability.durable_until_ms, state.log.segments.end
    for queue in state.queues:
        low, high = queue.min, queue.end
        if low < high and not _may_be_unsynced(state, queue, high - 1, safe_ms):
            continue
        if queue.unit(high - 1) is None and queue.find_unit_backwards(high - 1, low)[1] is None:
            continue  # gaps alone: it has no record in the log
        while low < high:
            middle = (low + high) // 2
            if _may_be_unsynced(state, queue, middle, safe_ms):
                high = middle
            else:
                low = middle + 1
        for queue_offset in (low, low - 1):
            unit = queue.unit(queue_offset)
            if unit is not None and unit[1] > 0:
                found = min(found, unit[0])
                break
        else:
            if low < queue.end:
                return state.log.min_offset
    return max(found, state.log.min_offset)


def _may_be_unsynced(
    state: StoreState, queue: ConsumeQueue, queue_offset: int, safe_ms: int
) -> bool:
    unit = queue.unit(queue_offset)
    if unit is None or unit[1] <= 0:
        return True
    records = parse_records(state.log.read(unit[0], unit[1]), unit[0], checks_body=False).records
    return not records or records[0].stored_ms >= safe_ms


def log_files(segments: Segments, begin: int, end: int) -> tuple[File, ...]:
    """Return the files that hold a range of the log."""
    starts = range(segments.start_of(begin), end, segments.segment_size)
    return tuple(file for start in starts if (file := segments.file(start)) is not None)


def rewrite_log(segments: Segments, position: int, size: int) -> None:
    """Rewrite a range of one segment in place, including the start of its first page."""
    start = segments.start_of(position)
    file = segments.file(position)
    if file is not None:
        first = (position - start) // _PAGE_SIZE * _PAGE_SIZE
        file.write_again(first, position - start + size - first)


def verified_parts(
    segments: Segments, begin: int, end: int, *, has_crc: bool
) -> Iterator[tuple[int, int]]:
    """Yield offsets and sizes of consecutive parts of the log, each verified to hold whole records.
    Raises CorruptRecord where one does not."""
    position = begin
    while (position := max(position, segments.first_position)) < end:
        following = segments.start_of(position) + segments.segment_size
        left = min(following, end) - position
        data = segments.read(position, min(_PART_SIZE, left))
        found = parse_records(data, position, has_crc=has_crc)
        # A record larger than a part.
        if not found.records and len(data) < found.wanted_size <= left:
            data = segments.read(position, found.wanted_size)
            found = parse_records(data, position, has_crc=has_crc)
        is_rolled = found.is_filler and following <= end
        lost = next((r for r in found.records if _lacks_sector(r)), None)
        if lost is not None or not (found.records or is_rolled):
            where = position if lost is None else lost.log_offset
            raise CorruptRecord(f"log offset {where}: {found.reason or 'a record is incomplete'}")
        yield position, found.size + (FILLER_SIZE if is_rolled else 0)
        position = following if is_rolled else position + found.size


def _lacks_sector(record: ScannedRecord) -> bool:
    """Whether a record's properties contain zeros that fill a whole sector. All other losses of a
    sector are found by the body's checksum or by sizes."""
    properties = record.properties
    if b"\0" not in properties:
        return False
    at, size = record.log_offset + record.size - len(properties), len(properties)
    borders = sorted({0, *range(-at % _SECTOR_SIZE, size, _SECTOR_SIZE), size})
    return any(not any(properties[low:high]) for low, high in pairwise(borders))
