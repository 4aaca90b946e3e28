"""Arithmetic of offset ranges: how many messages there are, how many to read now, and which task
reads which part."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from escrowmq.client.core.routes import MessageQueue
from escrowmq.errors import UsageError

Positions = dict[MessageQueue, int]
"""Offsets by queue."""


class QueueRange(msgspec.Struct, frozen=True, order=True):
    """The offsets of a queue from one up to another, exclusive."""

    queue: MessageQueue
    low: int
    high: int

    @property
    def count(self) -> int:
        """The number of offsets."""
        return self.high - self.low


def ranges_between(
    start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int]
) -> list[QueueRange]:
    """Return the non-empty ranges between two positions, which name the same queues."""
    return [
        QueueRange(queue, start[queue], end[queue])
        for queue in sorted(end)
        if end[queue] > start[queue]
    ]


def backlog_count(ranges: Iterable[QueueRange]) -> int:
    """Return the number of offsets in all ranges."""
    return sum(each.count for each in ranges)


def positions_after(start: Mapping[MessageQueue, int], ranges: Iterable[QueueRange]) -> Positions:
    """Return the positions after reading these ranges; queues without a range keep theirs."""
    return {**start, **{each.queue: each.high for each in ranges}}


def partition_ranges(
    ranges: Sequence[QueueRange],
    *,
    records_max: int = 0,
    partitions_min: int = 0,
    partitions_max: int = 0,
) -> list[tuple[QueueRange, ...]]:
    """Group the ranges into partitions: split them until none has more than `records_max` offsets
    and there are `partitions_min`, then merge until there are at most `partitions_max`. 0 is no
    limit."""
    if partitions_max and partitions_min > partitions_max:
        raise UsageError(
            f"minPartitions={partitions_min} is more than maxPartitions={partitions_max}"
        )
    pieces = _split_ranges(ranges, records_max=records_max, partitions_min=partitions_min)
    if not partitions_max or len(pieces) <= partitions_max:
        return [(piece,) for piece in pieces]
    return _pack_ranges(pieces, partitions_max)


def _split_ranges(
    ranges: Sequence[QueueRange], *, records_max: int, partitions_min: int
) -> list[QueueRange]:
    total = backlog_count(ranges)
    found: list[QueueRange] = []
    for each in ranges:
        parts_count = 1
        if partitions_min > len(ranges):
            parts_count = -(-partitions_min * each.count // total)
        if records_max:
            parts_count = max(parts_count, -(-each.count // records_max))
        found += _split_range(each, min(parts_count, each.count))
    return found


def _split_range(whole: QueueRange, parts_count: int) -> list[QueueRange]:
    cuts = [whole.low + whole.count * index // parts_count for index in range(parts_count + 1)]
    return [
        QueueRange(whole.queue, low, high) for low, high in itertools.pairwise(cuts) if high > low
    ]


def _pack_ranges(pieces: Sequence[QueueRange], partitions_max: int) -> list[tuple[QueueRange, ...]]:
    """Assign each range, the largest first, to the smallest partition; the order of a queue is
    kept."""
    heap = [(0, index) for index in range(partitions_max)]
    bins: list[list[QueueRange]] = [[] for _ in range(partitions_max)]
    for piece in sorted(pieces, key=lambda each: -each.count):
        count, index = heapq.heappop(heap)
        bins[index].append(piece)
        heapq.heappush(heap, (count + piece.count, index))
    return [tuple(sorted(each)) for each in bins]
