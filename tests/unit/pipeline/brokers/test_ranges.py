"""Arithmetic of offset ranges."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.client.core.routes import MessageQueue
from escrowmq.errors import UsageError
from escrowmq.pipeline.brokers.ranges import (
    QueueRange,
    partition_ranges,
    positions_after,
    ranges_between,
)


def queue(number: int) -> MessageQueue:
    return MessageQueue("t", "b", number)


ranges = st.lists(
    st.tuples(st.integers(0, 1 << 40), st.integers(1, 10_000)), min_size=1, max_size=20
).map(
    lambda found: [
        QueueRange(queue(index), low, low + count) for index, (low, count) in enumerate(found)
    ]
)


def test_what_lies_between() -> None:
    start = {queue(0): 5, queue(1): 7, queue(2): 9}
    end = {queue(0): 8, queue(1): 7, queue(2): 3}
    assert ranges_between(start, end) == [QueueRange(queue(0), 5, 8)]


@given(ranges, st.integers(0, 40), st.integers(0, 40), st.integers(0, 3_000))
def test_partitions_have_every_offset_once(
    found: list[QueueRange], low: int, high: int, records_max: int
) -> None:
    if high and low > high:
        low = high
    parts = partition_ranges(
        found, records_max=records_max, partitions_min=low, partitions_max=high
    )
    pieces = sorted(itertools.chain.from_iterable(parts))
    for whole in found:
        own = [each for each in pieces if each.queue == whole.queue]
        assert own[0].low == whole.low
        assert own[-1].high == whole.high
        assert all(one.high == two.low for one, two in itertools.pairwise(own))
    assert all(each.count > 0 for each in pieces)
    assert not records_max or all(each.count <= records_max for each in pieces)
    assert not high or len(parts) <= high


def test_there_are_as_many_partitions_as_wanted() -> None:
    found = [QueueRange(queue(0), 0, 9_000), QueueRange(queue(1), 0, 1_000)]
    assert len(partition_ranges(found, partitions_min=10)) == 10
    alike = [QueueRange(queue(index), 0, 10) for index in range(4)]
    assert len(partition_ranges(alike, partitions_min=10)) == 12, "no fewer, and alike long"
    assert len(partition_ranges(found, partitions_max=1)) == 1
    assert len(partition_ranges(found, records_max=100)) == 100
    assert partition_ranges([], partitions_min=4) == []


def test_partitions_have_alike_much() -> None:
    found = [QueueRange(queue(index), 0, 100 + index) for index in range(40)]
    parts = partition_ranges(found, partitions_max=4)
    counts = [sum(each.count for each in part) for part in parts]
    assert max(counts) - min(counts) <= 140


def test_bounds_that_contradict_each_other() -> None:
    with pytest.raises(UsageError, match="minPartitions=5 is more than maxPartitions=2"):
        partition_ranges([QueueRange(queue(0), 0, 9)], partitions_min=5, partitions_max=2)


def test_queues_without_messages_stay_where_they_are() -> None:
    assert positions_after({queue(0): 3, queue(1): 4}, [QueueRange(queue(1), 4, 9)]) == {
        queue(0): 3,
        queue(1): 9,
    }
