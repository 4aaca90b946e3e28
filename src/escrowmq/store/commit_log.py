"""The commit log: the records of all topics, one after another, in segments of one length.

A record never crosses the end of a segment. At least 8 bytes stay free there for the filler, which
says that the next record starts the next segment.
"""

from __future__ import annotations

from typing import Final

from escrowmq.base.ports import Disk, File
from escrowmq.codec.record import encode_filler
from escrowmq.codec.record_layout import FILLER_SIZE
from escrowmq.errors import StorageError
from escrowmq.store.segment import Segments
from escrowmq.store.settling_reserve import SettlingReserve

FOLDER: Final = "commitlog"


class CommitLog:
    """Appends records. `reserve_size` bytes of space after the end are reserved for settling
    writes."""

    def __init__(self, disk: Disk, *, segment_size: int, reserve_size: int) -> None:
        self.segments = Segments(disk, FOLDER, segment_size=segment_size, is_sequential=True)
        self.segment_size = segment_size
        self.record_size_max = segment_size - FILLER_SIZE
        self.end_offset = 0
        self.stored_ms = 0
        """The time of the newest record. No later record gets an earlier time."""
        self._reserve = SettlingReserve(self.segments, segment_size=segment_size, size=reserve_size)
        self.read = self.segments.read
        self.read_runs, self.memory_at = self.segments.read_runs, self.segments.memory_at
        self._ordinary_end = 0
        """The offset up to which ordinary records have space, as the reserve last said. Cached,
        because each append compares with it."""
        self._file: File | None = None
        self._file_start = 0
        self._unsynced: list[File] = []

    @property
    def min_offset(self) -> int:
        """The offset at which the oldest segment starts."""
        return self.segments.first_position

    def start(self, end_offset: int) -> None:
        """Append from this offset on, after recovery."""
        self.end_offset = self._ordinary_end = end_offset
        self._reserve.begin_at(end_offset)
        self._file = None
        self._unsynced = []

    def raise_stored_ms(self, stored_ms: int) -> None:
        """Raise the time of the newest record to this one."""
        self.stored_ms = max(stored_ms, self.stored_ms)

    def allow_earlier_times(self, now_ms: int) -> None:
        """Let the next records have this time, even if earlier records have a later one."""
        self.stored_ms = now_ms

    def fits(self, size: int) -> bool:
        """Whether a record of this size fits into the current segment."""
        left = self.segment_size - self.end_offset % self.segment_size
        return size + FILLER_SIZE <= left

    @property
    def space_end(self) -> int:
        """The offset up to which ordinary records have space, in the current segment and on the
        disk."""
        segment_end = self.end_offset - self.end_offset % self.segment_size + self.segment_size
        end = segment_end - FILLER_SIZE
        if end > self._ordinary_end:
            end = self._ordinary_end
        return end

    def append(self, record: bytes, stored_ms: int, *, is_settling: bool = False) -> None:
        """Append one or several records, and set the time of the newest record. Raises DiskFull,
        with nothing written, when there is no space."""
        end_offset = self.end_offset
        end = end_offset + len(record)
        if end > self._ordinary_end:
            self._reserve_until(end, is_settling=is_settling)
        position = end_offset - self._file_start
        file = self._file
        if file is None or position >= self.segment_size:
            file = self._next_file()
            position = end_offset - self._file_start
        assert position + len(record) + FILLER_SIZE <= self.segment_size, "roll the segment first"
        file.write(position, record)
        self.end_offset = end
        if stored_ms > self.stored_ms:
            self.stored_ms = stored_ms

    def reserve_settling_space(self, size: int) -> bool:
        """Try to reserve space for several settling records of this total size. Return whether
        there is enough."""
        end = self.end_offset + size
        if not self.fits(size):  # the unused end of a segment is smaller than the next record
            segments_count = size // self.segment_size + 1
            end += min(size, self.segment_size) * segments_count + FILLER_SIZE
        return self._has_space(end, is_settling=True)

    def roll(self, size: int, *, is_settling: bool = False) -> None:
        """Close the segment with a filler, and continue in the next one with space for `size`
        bytes. Raises DiskFull, with nothing changed, when there is none."""
        start = self.segments.start_of(self.end_offset) + self.segment_size
        left = start - self.end_offset
        assert left >= FILLER_SIZE, left
        self._reserve_until(start + size, is_settling=is_settling)
        file = self._file or self._next_file()
        file.write(self.end_offset - self._file_start, encode_filler(left))
        self.end_offset = start
        assert self.fits(size), (size, self.segment_size)

    def write_padding(self, position: int, data: bytes) -> None:
        """Write bytes that belong to no record, after the end of the log and in the same
        segment."""
        file = self._file or self._next_file()
        assert self.end_offset + FILLER_SIZE <= position, (position, self.end_offset)
        assert position + len(data) <= self._file_start + self.segment_size, position
        file.write(position - self._file_start, data)

    def refill_reserve(self) -> bool:
        """Try to fill up the reserve for settling writes. Return whether it is full."""
        return self._has_space(self.end_offset, is_settling=False)

    def unsynced_files(self) -> tuple[File, ...]:
        """Return the files to sync so that everything up to the current end becomes durable."""
        files = tuple(self._unsynced)
        # The current file is written during that sync, so the next sync needs it too.
        self._unsynced = [self._file] if self._file is not None else []
        return files

    def remove_unused_segments(self) -> None:
        """Remove segments that were created in advance and are empty. The last file is kept: it
        shows that there is a log, and where it continues."""
        segments = self.segments
        while (
            segments.last_start >= self.end_offset and segments.last_start > segments.first_position
        ):
            segments.remove(segments.last_start)
        self._ordinary_end = self.end_offset
        self._reserve.begin_at(self.end_offset)

    def _next_file(self) -> File:
        self._file = self.segments.get_or_create(self.end_offset)
        self._file_start = self.segments.start_of(self.end_offset)
        self._unsynced.append(self._file)
        return self._file

    def _has_space(self, end: int, *, is_settling: bool) -> bool:
        try:
            self._reserve_until(end, is_settling=is_settling)
        except (StorageError, OSError):
            return False
        return True

    def _reserve_until(self, end: int, *, is_settling: bool) -> None:
        self._ordinary_end = self._reserve.reserve_until(end, is_settling=is_settling)
