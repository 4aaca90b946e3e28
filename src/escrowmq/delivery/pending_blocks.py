"""Knows the first of the timer's pending records, by a number for each block of 64 queue
offsets."""

from __future__ import annotations

from typing import Final

_BITS: Final = 6
_MASK: Final = (1 << _BITS) - 1


class PendingBlocks:
    """The pending records of each block of queue offsets, as bits. Blocks are added in order."""

    def __init__(self) -> None:
        self._blocks: dict[int, int] = {}

    def add(self, queue_offset: int) -> None:
        """Note a record as pending."""
        block = queue_offset >> _BITS
        self._blocks[block] = self._blocks.get(block, 0) | 1 << (queue_offset & _MASK)

    def remove(self, queue_offset: int) -> None:
        """Note a record as pending no more."""
        block = queue_offset >> _BITS
        left = self._blocks[block] & ~(1 << (queue_offset & _MASK))
        if left:
            self._blocks[block] = left
        else:
            del self._blocks[block]

    def oldest_before(self, queue_offset: int) -> int:
        """Return the first pending record, or this offset if that is before it."""
        block = next(iter(self._blocks), None)
        if block is None:
            return queue_offset
        bits = self._blocks[block]
        first = (block << _BITS) + (bits & -bits).bit_length() - 1
        return min(first, queue_offset)
