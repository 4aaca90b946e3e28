"""Disk space after the log's end, part of which is reserved for settling writes.

The ends of transactions, checks and the like are written on a full disk in the space that was
reserved earlier."""

from __future__ import annotations

from typing import Final

from escrowmq.errors import DiskFull
from escrowmq.store.segment import Segments

_AHEAD_SIZE: Final = 4 * 1024 * 1024


class SettlingReserve:
    """How far the log's segments have space; `size` bytes of it are kept for settling writes."""

    def __init__(self, segments: Segments, *, segment_size: int, size: int) -> None:
        self._segments = segments
        self._segment_size = segment_size
        # More than a segment could not be kept in the current and the next one.
        self._size = min(size, segment_size)
        self._reserved_end = 0
        self._ordinary_end = 0

    def begin_at(self, log_offset: int) -> None:
        """Nothing is reserved after an offset."""
        self._reserved_end = self._ordinary_end = log_offset

    def admit(self, end: int, *, is_settling: bool) -> int:
        """Make sure that a write up to `end` has space, and that the reserve remains after it.
        Returns up to where ordinary writes have space now. DiskFull when this one has none."""
        wanted = end + self._size
        if self._reserved_end < wanted:
            last = self._segments.start_of(wanted - 1) + self._segment_size
            try:
                self._reserve(min(wanted + _AHEAD_SIZE, last))
            except DiskFull:
                if self._reserved_end < (end if is_settling else wanted):
                    raise
        self._ordinary_end = max(self._reserved_end - self._size, self._ordinary_end)
        return self._ordinary_end

    def _reserve(self, until: int) -> None:
        while self._reserved_end < until:
            start = self._segments.start_of(self._reserved_end)
            position = self._reserved_end - start
            size = min(until - self._reserved_end, self._segment_size - position, _AHEAD_SIZE)
            self._segments.make(start).reserve(position, size)
            self._reserved_end += size
