"""`spark.readStream.format("escrowmq")` on EscrowMQ's broker."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import escrowmq
from tests.interop import servers, wire
from tests.interop.drivers import unique
from tests.interop.process import until
from tests.interop.servers import Server

from .releases import needs_limits, needs_no_limits
from .topics import copied, copied_numbers, loaded, numbers_of, send_numbers, streamed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyarrow")

from escrowmq.pipeline.lag import lag


def sizes_of(query: Any) -> list[int]:
    return [each.numInputRows for each in query.recentProgress if each.numInputRows]


def places_in(told: str) -> Any:
    """The offsets in a report of progress; PySpark 4.1 tells them as Python writes them."""
    return ast.literal_eval(told)["q"]


@pytest.mark.versions
@needs_limits
def test_batches_are_bounded_and_the_lag_is_told(
    spark: SparkSession, server: Server, topic: str, tmp_path: Path
) -> None:
    send_numbers(server, topic, range(50))
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 20}
    query = copied(streamed(spark, server, topic, **options), tmp_path)
    assert copied_numbers(tmp_path) == [*range(50)]
    assert sizes_of(query) == [20, 20, 10]
    source = query.recentProgress[0].sources[0]
    reached, latest = places_in(source.endOffset), places_in(source.latestOffset)
    lag = [latest[topic]["broker-a"][q] - n for q, n in reached[topic]["broker-a"].items()]
    assert sum(lag) == 30

    send_numbers(server, topic, range(50, 60))
    copied(streamed(spark, server, topic, **options), tmp_path)
    assert copied_numbers(tmp_path) == [*range(60)], "a restart continues where it was"


@pytest.mark.versions
def test_a_filtered_stream_advances(
    spark: SparkSession, server: Server, topic: str, tmp_path: Path
) -> None:
    send_numbers(server, topic, range(30))
    options = {"startingOffsets": "earliest", "tags": "b"}
    copied(streamed(spark, server, topic, **options), tmp_path)
    assert copied_numbers(tmp_path) == [*range(1, 30, 2)]
    send_numbers(server, topic, range(30, 40), tag="a")
    query = copied(streamed(spark, server, topic, **options), tmp_path)
    ends = places_in(query.lastProgress.sources[0].endOffset)[topic]["broker-a"]
    assert sum(ends.values()) == 40
    assert copied_numbers(tmp_path) == [*range(1, 30, 2)]


@pytest.mark.versions
@needs_no_limits
def test_without_limits_a_batch_has_all_there_is_and_a_warning_says_so(
    spark: SparkSession,
    server: Server,
    topic: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from escrowmq.pipeline.datasource import EscrowMQSource

    send_numbers(server, topic, range(50))
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 20}
    frame = streamed(spark, server, topic, **options)
    query = copied(frame, tmp_path)
    assert copied_numbers(tmp_path) == [*range(50)]
    assert sizes_of(query) == [50]
    own = {"nameServer": server.nameserver, "subscribe": topic, "maxOffsetsPerTrigger": "20"}
    EscrowMQSource(own).streamReader(frame.schema)  # what Spark does, in a process of its own
    assert "maxOffsetsPerTrigger" in caplog.text

    send_numbers(server, topic, range(50, 60))
    copied(streamed(spark, server, topic, **options), tmp_path)
    assert copied_numbers(tmp_path) == [*range(60)], "a restart continues where it was"


@needs_limits
def test_bytes_bound_a_batch(
    spark: SparkSession, server: Server, topic: str, tmp_path: Path
) -> None:
    send_numbers(server, topic, range(60))
    options = {"startingOffsets": "earliest", "maxBytesPerTrigger": "5k"}
    query = copied(streamed(spark, server, topic, **options), tmp_path)
    counts = sizes_of(query)
    assert sum(counts) == 60
    assert 3 <= len(counts) <= 6, "about 230 bytes a message"


def test_a_new_queue_is_read_from_its_beginning(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    name = servers.new_topic(server, unique("grows"), queues=1)
    options = {"startingOffsets": "latest"}
    send_numbers(server, name, range(3))
    copied(streamed(spark, server, name, **options), tmp_path)
    servers.new_topic(server, name, queues=4)
    until("four queues", lambda: b'"readQueueNums":4' in _route(server, name))
    send_numbers(server, name, range(10, 30))
    copied(streamed(spark, server, name, **options), tmp_path)
    assert copied_numbers(tmp_path) == [*range(10, 30)]


def _route(server: Server, topic: str) -> bytes:
    return wire.ask(server.nameserver, 105, {"topic": topic}).body


@needs_limits
def test_few_messages_wait_for_more_but_not_for_ever(
    spark: SparkSession, server: Server, topic: str, tmp_path: Path
) -> None:
    options = {
        "startingOffsets": "earliest",
        "minOffsetsPerTrigger": 10,
        "maxTriggerDelay": "4s",
    }
    send_numbers(server, topic, range(3))
    frame = streamed(spark, server, topic, **options)
    writer = frame.selectExpr("cast(body as string) as n").writeStream.format("text")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.start(str(tmp_path / "out"))
    try:
        until("the first batch", lambda: copied_numbers(tmp_path) == [0, 1, 2])
        send_numbers(server, topic, range(3, 13))
        until("ten are there", lambda: copied_numbers(tmp_path) == [*range(13)], within_s=20)
        send_numbers(server, topic, range(13, 15))
        until("waited enough", lambda: copied_numbers(tmp_path) == [*range(15)], within_s=20)
        until("three batches are told", lambda: sizes_of(query) == [3, 10, 2])
    finally:
        query.stop()


@needs_limits
def test_progress_is_shown_at_the_broker_when_wanted(
    spark: SparkSession, server: Server, topic: str, tmp_path: Path
) -> None:
    send_numbers(server, topic, range(20))
    group = unique("shown")
    options = {
        "startingOffsets": "earliest",
        "group": group,
        "commitOffsets": "true",
        "maxOffsetsPerTrigger": 8,
    }
    copied(streamed(spark, server, topic, **options), tmp_path)
    # Spark commits a batch when it plans the next one, so never the last.
    assert wire.committed(server.broker, group, topic) == 16


def test_a_topic_that_was_made_anew_is_told(
    spark: SparkSession, own_server: Callable[..., Server], tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    server = own_server()
    topic = servers.new_topic(server, unique("T"), queues=1)
    send_numbers(server, topic, range(9))
    options = {"startingOffsets": "earliest"}
    copied(streamed(spark, server, topic, **options), tmp_path)
    store = server.store
    server.stop()
    store.rename(store.with_name("old"))
    server.start()
    servers.new_topic(server, topic, queues=1)
    send_numbers(server, topic, range(100, 105))
    with pytest.raises(StreamingQueryException) as seen:
        copied(streamed(spark, server, topic, **options), tmp_path)
    assert f"queue 0 of {topic} on broker-a was read up to 9, and ends at 5" in str(seen.value)
    send_numbers(server, topic, range(105, 107))
    copied(streamed(spark, server, topic, failOnDataLoss="false", **options), tmp_path)
    send_numbers(server, topic, range(107, 109))
    copied(streamed(spark, server, topic, failOnDataLoss="false", **options), tmp_path)
    assert copied_numbers(tmp_path) == [*range(9), *range(100, 109)]


@pytest.mark.versions
def test_a_stream_begins_where_a_consumer_group_is(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    topic = servers.new_topic(server, unique("moved"), queues=3)
    send_numbers(server, topic, range(12))
    group = unique("mailer")
    taken = []
    with escrowmq.Consumer(
        server.nameserver, group=group, topic=topic, consume_from="first"
    ) as consumer:
        for message in consumer:
            taken.append(int(message.body))
            message.ack()
            if len(taken) == 5:
                break
    send_numbers(server, topic, range(12, 20))
    options = {"startingOffsets": f"group:{group}"}
    rest = sorted({*range(20)} - {*taken})
    assert numbers_of(loaded(spark, server, topic, **options)) == rest
    frame = streamed(spark, server, topic, **options)
    copied(frame, tmp_path)
    send_numbers(server, topic, range(20, 24))
    copied(frame, tmp_path)
    assert copied_numbers(tmp_path) == [*rest, *range(20, 24)]
    with pytest.raises(Exception, match="no broker keeps an offset of this group"):
        loaded(spark, server, topic, startingOffsets=f"group:{group}s").count()


@needs_limits
def test_the_lag_is_a_number(spark: SparkSession, server: Server, tmp_path: Path) -> None:
    topic = servers.new_topic(server, unique("lag"), queues=2)
    send_numbers(server, topic, range(10))
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 4}
    query = copied(streamed(spark, server, topic, **options), tmp_path)
    lags = [lag(progress) for progress in query.recentProgress]
    assert lags == sorted(lags, reverse=True)
    assert (lags[0], lags[-1]) == (6, 0)


@needs_limits
@pytest.mark.parametrize("trigger", [{"continuous": "1 second"}, {"realTime": "5 seconds"}])
def test_triggers_without_batches_are_refused(
    spark: SparkSession, server: Server, topic: str, tmp_path: Path, trigger: dict[str, str]
) -> None:
    frame = streamed(spark, server, topic).selectExpr("cast(body as string) as value")
    writer = frame.writeStream.format("console").outputMode("update")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(**trigger)

    def run() -> None:
        query = writer.start()
        try:
            query.awaitTermination(60)
        finally:
            query.stop()

    with pytest.raises(Exception, match=r"does not support continuous|not supported in Real-time"):
        run()
