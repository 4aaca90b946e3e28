"""Reserves disk space after the log's end, part of it for settling writes.

So ENDs, checks and the like can be stored on a full disk.
"""

from __future__ import annotations

from typing import Final

from escrowmq.errors import DiskFull
from escrowmq.store.segment import Segments

_AHEAD_SIZE: Final = 4 * 1024 * 1024


class SettlingReserve:
    """Tracks how far the log has reserved disk space; `size` bytes of it are only for settling
    writes."""

    def __init__(self, segments: Segments, *, segment_size: int, size: int) -> None:
        self._segments = segments
        self._segment_size = segment_size
        # A reserve larger than a segment would not fit into the current and the next one.
        self._size = min(size, segment_size)
        self._reserved_end = 0
        self._ordinary_end = 0

    def begin_at(self, log_offset: int) -> None:
        """Start at a log offset, with nothing reserved after it."""
        self._reserved_end = self._ordinary_end = log_offset

    def reserve_until(self, end: int, *, is_settling: bool) -> int:
        """Reserve space for a write up to `end`, and for the reserve after it. Return the offset up
        to which ordinary writes have space. Raises DiskFull when this write has none."""
        wanted = end + self._size
        if self._reserved_end < wanted:
            last = self._segments.start_of(wanted - 1) + self._segment_size
            try:
                self._reserve_in_log(min(wanted + _AHEAD_SIZE, last))
            except DiskFull:
                if self._reserved_end < (end if is_settling else wanted):
                    raise
        self._ordinary_end = max(self._reserved_end - self._size, self._ordinary_end)
        return self._ordinary_end

    def _reserve_in_log(self, until: int) -> None:
        while self._reserved_end < until:
            start = self._segments.start_of(self._reserved_end)
            position = self._reserved_end - start
            size = min(until - self._reserved_end, self._segment_size - position, _AHEAD_SIZE)
            self._segments.get_or_create(start).reserve(position, size)
            self._reserved_end += size
