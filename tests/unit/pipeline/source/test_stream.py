"""When a stream begins its next batch, by a clock of the test's own."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from escrowmq.client.core.routes import MessageQueue
from escrowmq.errors import DataLost
from escrowmq.pipeline.brokers.ranges import Positions, QueueRange
from escrowmq.pipeline.source import stream
from escrowmq.pipeline.source.options import SourceOptions, parse_source_options
from escrowmq.pipeline.source.stream import StreamReader
from escrowmq.pipeline.source.stream_place import (
    Offset,
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
        self.born_ms = 1_000
        """When the queue's offset 0 was stored."""
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
        born = (self.low, self.born_ms + self.low)
        return {queue: born for queue in found if self.low < self.end}

    def require_readable(self, wanted: Positions) -> set[MessageQueue]:
        return set(wanted)

    def recreate(self, end: int) -> None:
        """Delete the topic and create it again, with so many messages."""
        self.low, self.end, self.born_ms = 0, end, self.born_ms + 1_000_000


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
    assert len(caplog.messages) == 1
    assert queues.asked_count == 2, "its first message, and its first offset"
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


def ranges_of(reader: StreamReader, start: Offset, end: Offset) -> list[tuple[int, int]]:
    """What a batch reads of the queue."""
    return [(each.low, each.high) for part in reader.partitions(start, end) for each in part.ranges]


def test_a_topic_recreated_before_anything_was_read_is_recognised(queues: Queues) -> None:
    """A query that began at the latest offsets read on in the new topic at the old offset."""
    queues.end = 10
    reader = reader_of(queues)
    latest = StreamPosition({QUEUE: 10}, is_initial=True)
    place = reader._next_end(encode_position(latest), 0, 0, 0)
    queues.recreate(25)
    with pytest.raises(DataLost, match="read up to 10, and its first message is another"):
        reader._next_end(place, 0, 0, 0)
    found = reader_of(queues, failOnDataLoss="false")
    end = found._next_end(place, 0, 0, 0)
    assert ranges_of(found, place, end) == [(0, 25)]


def test_a_batch_that_is_repeated_reads_no_topic_that_was_recreated_since(
    queues: Queues, caplog: pytest.LogCaptureFixture
) -> None:
    """The driver died after the batch was planned; it read the new topic's rows instead."""
    queues.end = 20
    start = encode_position(StreamPosition({QUEUE: 10}, births={QUEUE: (0, 1_000)}))
    end = reader_of(queues)._next_end(start, 0, 0, 0)
    assert ranges_of(reader_of(queues), start, end) == [(10, 20)]
    queues.recreate(40)
    with pytest.raises(DataLost, match="planned to be read from 10 to 19, and was recreated since"):
        reader_of(queues).partitions(start, end)
    tolerant = reader_of(queues, failOnDataLoss="false")
    assert ranges_of(tolerant, start, end) == []
    assert "was recreated since" in caplog.text
    following = tolerant._next_end(end, 0, 0, 0)
    assert ranges_of(tolerant, end, following) == [(0, 40)], "each of its rows is read once"


def test_retention_before_the_first_batch_of_a_new_queue_is_repeated_is_told(
    queues: Queues,
) -> None:
    """The batch was planned from offset 0; repeated, it began silently where the queue did now."""
    queues.end = 20
    start = encode_position(StreamPosition({}))
    end = reader_of(queues)._next_end(start, 0, 0, 0)
    assert ranges_of(reader_of(queues), start, end) == [(0, 20)]
    queues.low = 5
    with pytest.raises(DataLost, match="messages 0 to 4 of queue 0"):
        reader_of(queues).partitions(start, end)
    assert ranges_of(reader_of(queues, failOnDataLoss="false"), start, end) == [(5, 20)]


def test_a_queue_that_lost_its_last_messages_is_read_on_at_its_end(
    queues: Queues, caplog: pytest.LogCaptureFixture
) -> None:
    """It is no recreated one, and was nevertheless read from its beginning."""
    start = encode_position(StreamPosition({QUEUE: 1_000}, births={QUEUE: (0, 1_000)}))
    queues.end = 997
    with pytest.raises(DataLost, match="read up to 1000, and ends at 997: its broker lost"):
        reader_of(queues)._next_end(start, 0, 0, 0)
    reader = reader_of(queues, failOnDataLoss="false")
    end = reader._next_end(start, 0, 0, 0)
    assert decode_position(end).at == {QUEUE: 997}
    assert ranges_of(reader_of(queues), start, end) == []
    queues.end = 1_005
    following = reader._next_end(end, 0, 0, 0)
    assert ranges_of(reader, end, following) == [(997, 1_005)]
    assert len(caplog.messages) == 1


def test_a_shorter_queue_without_its_first_message_may_be_another_one(queues: Queues) -> None:
    start = encode_position(StreamPosition({QUEUE: 1_000}, births={QUEUE: (0, 1_000)}))
    queues.low, queues.end = 500, 997
    reader = reader_of(queues, failOnDataLoss="false")
    end = reader._next_end(start, 0, 0, 0)
    assert ranges_of(reader, start, end) == [(500, 997)]
