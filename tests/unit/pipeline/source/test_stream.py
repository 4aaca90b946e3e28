"""When a stream begins its next batch, by a clock of the test's own."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from escrowmq.client.core.routes import MessageQueue
from escrowmq.pipeline.brokers.ranges import Positions, QueueRange
from escrowmq.pipeline.source import stream
from escrowmq.pipeline.source.options import SourceOptions, parse_source_options
from escrowmq.pipeline.source.stream import StreamReader
from escrowmq.pipeline.source.stream_place import (
    QueueIdentities,
    StreamPosition,
    decode_position,
    encode_position,
)

QUEUE = MessageQueue("t", "b", 0)
OPTIONS = {"nameServer": "h:1", "subscribe": "t", "startingOffsets": "earliest"}
START_MS = 1_700_000_000_000


class Queues:
    """One queue, as long as the test says."""

    def __init__(self) -> None:
        self.low = self.end = 0
        self.asked_count = 0
        """Queues whose first message was asked for."""
        self.time_ms = START_MS
        self.cluster = self

    def now_ms(self) -> int:
        return self.time_ms

    def current_ends(
        self, since: Positions, gone: Collection[MessageQueue]
    ) -> tuple[Positions, set[MessageQueue]]:
        return {QUEUE: self.end}, set(gone)

    def first_offsets(self, queues: Any) -> Positions:
        found = list(queues)
        self.asked_count += len(found)
        return dict.fromkeys(found, self.low)

    def identities(self, queues: Any) -> QueueIdentities:
        found = self.first_offsets(queues)
        return {queue: (self.low, 1_000 + self.low) for queue in found if self.low < self.end}


def reader_of(queues: Queues, **more: str) -> StreamReader:
    """A reader of the queue."""
    reader = StreamReader(parse_source_options(OPTIONS | more, is_stream=True), StructType())
    reader._opened = queues  # type: ignore[assignment]
    return reader


class Stream:
    """A query that waits for ten messages, or a minute."""

    def __init__(self, queues: Queues) -> None:
        self.reader = reader_of(queues, minOffsetsPerTrigger="10", maxTriggerDelay="1m")
        self.place = encode_position(StreamPosition({QUEUE: 0}, is_initial=True))

    def next(self) -> int | None:
        """Where the next batch ends; None when there is none."""
        found = self.reader._next_end(self.place, 0, 0, 10)
        if found == self.place:
            return None
        self.place = found
        return decode_position(found).at[QUEUE]


@pytest.fixture(name="queues")
def make_queues() -> Queues:
    return Queues()


def test_fewer_messages_than_wanted_wait_from_the_first_batch_on(queues: Queues) -> None:
    stream = Stream(queues)
    queues.end = 6
    assert stream.next() == 0, "the first batch is empty: the place counts"
    queues.time_ms += 400
    assert stream.next() is None
    queues.end = 10
    assert stream.next() == 10
    queues.end = 19
    queues.time_ms += 59_999
    assert stream.next() is None
    queues.time_ms += 1
    assert stream.next() == 19


def test_enough_messages_are_read_at_once(queues: Queues) -> None:
    stream = Stream(queues)
    queues.end = 25
    assert stream.next() == 25
    assert stream.next() is None


def test_a_query_that_is_started_again_waits_again(queues: Queues) -> None:
    stream = Stream(queues)
    queues.end = 10
    assert stream.next() == 10
    again = Stream(queues)
    again.place = stream.place
    queues.end = 16
    queues.time_ms += 3_600_000
    assert again.next() is None
    queues.time_ms += 60_000
    assert again.next() == 16


def test_nothing_new_is_no_batch_however_long_it_takes(queues: Queues) -> None:
    stream = Stream(queues)
    assert stream.next() == 0
    queues.time_ms += 10_000_000
    assert stream.next() is None


@pytest.mark.parametrize(("rows_max", "size_max"), [(100, 0), (0, 100_000)])
def test_no_limit_counts_messages_that_retention_has_removed(
    queues: Queues, monkeypatch: pytest.MonkeyPatch, rows_max: int, size_max: int
) -> None:
    def sampled_size(ranges: list[QueueRange], options: SourceOptions) -> float:
        return 1_000 if ranges[0].low >= queues.low else 1

    monkeypatch.setattr(stream, "estimated_size", sampled_size)
    reader = reader_of(queues, failOnDataLoss="false")
    start = encode_position(StreamPosition({QUEUE: 0}))
    queues.low, queues.end = 500, 10_000
    assert decode_position(reader._next_end(start, rows_max, size_max, 0)).at[QUEUE] == 600
    queues.low = 9_990
    assert decode_position(reader._next_end(start, rows_max, size_max, 0)).at[QUEUE] == 10_000


def test_a_recreated_topic_that_is_still_empty_is_told_once(
    queues: Queues, caplog: pytest.LogCaptureFixture
) -> None:
    reader = reader_of(queues, failOnDataLoss="false")
    start = encode_position(StreamPosition({QUEUE: 5}, births={QUEUE: (0, 1)}))
    for _ in range(100):
        assert reader._next_end(start, 0, 0, 0) == start
    assert len(caplog.messages) == queues.asked_count == 1
    queues.end = 3
    found = decode_position(reader._next_end(start, 0, 0, 0))
    assert (found.at, found.births) == ({QUEUE: 3}, {QUEUE: (0, 1_000)})


@pytest.mark.parametrize("gone", [set(), {QUEUE}])
def test_a_queue_that_is_new_or_back_is_looked_up_once_while_nothing_comes(
    queues: Queues, gone: set[MessageQueue]
) -> None:
    reader = reader_of(queues)
    at = dict.fromkeys(gone, 0)
    start = encode_position(
        StreamPosition(at, births=dict.fromkeys(gone, (0, 1)), gone=frozenset(gone))
    )
    for _ in range(100):
        assert reader._next_end(start, 0, 0, 0) == start
    assert queues.asked_count == 1
