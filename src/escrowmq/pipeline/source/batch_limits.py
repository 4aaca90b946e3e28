"""Divides a limited batch among queues."""

from __future__ import annotations

from collections.abc import Sequence

from escrowmq.pipeline.brokers.ranges import QueueRange, backlog_count


def limit_ranges(ranges: Sequence[QueueRange], count_max: int) -> list[QueueRange]:
    """Shorten the ranges to a limited number of offsets in total. Each range gets a share in
    proportion to its length, and at least one offset so that no queue starves, even if the total is
    then above the limit."""
    total = backlog_count(ranges)
    if total <= count_max:
        return list(ranges)
    shares = [max(1, each.count * count_max // total) for each in ranges]
    left = max(count_max, len(ranges)) - sum(shares)
    # The remainder (or the excess, since each has at least one) is taken from the longest.
    for index in sorted(range(len(ranges)), key=lambda index: -ranges[index].count):
        change = max(1 - shares[index], min(left, ranges[index].count - shares[index]))
        shares[index] += change
        left -= change
    return [
        QueueRange(each.queue, each.low, each.low + share)
        for each, share in zip(ranges, shares, strict=True)
    ]
