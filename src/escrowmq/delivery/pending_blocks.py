"""Knows the first of the timer's pending records, to 64 queue offsets, in a number for each block
of them."""

from __future__ import annotations

from typing import Final

_BITS: Final = 6


class PendingBlocks:
    """The number of pending records in each block of queue offsets. Blocks are added in order."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def add(self, queue_offset: int) -> None:
        """Count a record as pending."""
        block = queue_offset >> _BITS
        self._counts[block] = self._counts.get(block, 0) + 1

    def remove(self, queue_offset: int) -> None:
        """Count a record as pending no more."""
        block = queue_offset >> _BITS
        left = self._counts[block] - 1
        if left:
            self._counts[block] = left
        else:
            del self._counts[block]

    def oldest_before(self, queue_offset: int) -> int:
        """Return an offset up to this one before which no record is pending."""
        block = next(iter(self._counts), None)
        return queue_offset if block is None else min(block << _BITS, queue_offset)
