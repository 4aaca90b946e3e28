"""Topics that go, come anew, or are away for a while: no stream has fewer rows and says nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import escrowmq
from escrowmq.codec.routes import decode_route
from tests.interop import servers, wire
from tests.interop.drivers import unique
from tests.interop.process import until
from tests.interop.servers import Server
from tests.sdk.parts import Cluster

from .releases import needs_limits
from .topics import copied, copied_numbers, send_numbers, streamed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EARLIEST = {"startingOffsets": "earliest"}


def delete(server: Server, topic: str) -> None:
    with escrowmq.Admin(server.nameserver) as admin:
        admin.topics.delete(topic)
    until("it is gone", lambda: wire.ask(server.nameserver, 105, {"topic": topic}).code != 0)


def make_anew(server: Server, topic: str, numbers: Iterable[int]) -> None:
    """Delete a topic, create it again, and send to it."""
    delete(server, topic)
    servers.new_topic(server, topic, queues=1)
    send_numbers(server, topic, numbers)


def failure(work: Callable[[], object]) -> str:
    from pyspark.errors import StreamingQueryException

    with pytest.raises(StreamingQueryException) as seen:
        work()
    return str(seen.value)


def test_a_topic_made_anew_that_is_longer_than_the_old_one_is_told(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    topic = servers.new_topic(server, unique("anew"), queues=1)
    send_numbers(server, topic, range(5))
    copied(streamed(spark, server, topic, **EARLIEST), tmp_path)
    make_anew(server, topic, range(100, 112))
    text = failure(lambda: copied(streamed(spark, server, topic, **EARLIEST), tmp_path))
    assert f"queue 0 of {topic} on broker-a was read up to 5, and its first message is" in text
    assert "Set failOnDataLoss=false to read it from its beginning" in text
    options = {"failOnDataLoss": "false", "maxOffsetsPerTrigger": 8, **EARLIEST}
    copied(streamed(spark, server, topic, **options), tmp_path)
    send_numbers(server, topic, range(112, 115))
    copied(streamed(spark, server, topic, **EARLIEST), tmp_path)
    assert copied_numbers(tmp_path) == [*range(5), *range(100, 115)]


@needs_limits
def test_a_topic_made_anew_before_a_stream_from_its_end_has_read_is_told(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    topic = servers.new_topic(server, unique("anew"), queues=1)
    send_numbers(server, topic, range(5))
    copied(streamed(spark, server, topic), tmp_path)
    make_anew(server, topic, range(100, 112))
    text = failure(lambda: copied(streamed(spark, server, topic), tmp_path))
    assert f"queue 0 of {topic} on broker-a was read up to 5, and its first message is" in text


@needs_limits
def test_a_topic_made_anew_after_the_driver_died_is_not_read_for_the_planned_batch(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    topic = servers.new_topic(server, unique("anew"), queues=1)
    send_numbers(server, topic, range(5))
    copied(streamed(spark, server, topic, **EARLIEST), tmp_path)
    send_numbers(server, topic, range(5, 9))
    copied(streamed(spark, server, topic, **EARLIEST), tmp_path)
    for log in ("checkpoint/commits", "out/_spark_metadata"):  # as if it had not come so far
        last = max(int(each.name) for each in (tmp_path / log).glob("[0-9]*"))
        for name in (f"{last}", f".{last}.crc"):
            (tmp_path / log / name).unlink(missing_ok=True)
    make_anew(server, topic, range(100, 112))
    text = failure(lambda: copied(streamed(spark, server, topic, **EARLIEST), tmp_path))
    assert f"queue 0 of {topic} on broker-a was planned to be read from 5 to 8" in text
    assert copied_numbers(tmp_path) == [*range(5)]
    options = {"failOnDataLoss": "false", **EARLIEST}
    copied(streamed(spark, server, topic, **options), tmp_path)
    assert copied_numbers(tmp_path) == [*range(5), *range(100, 112)]


def test_a_topic_of_a_pattern_that_goes_unread_is_told(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    stays, goes = (servers.new_topic(server, unique("fits"), queues=1) for _ in range(2))
    options = {"subscribePattern": f"{stays}|{goes}", **EARLIEST}
    for topic, numbers in ((stays, range(3)), (goes, range(10, 13))):
        send_numbers(server, topic, numbers)
    copied(streamed(spark, server, "", **options), tmp_path)
    send_numbers(server, goes, range(13, 18))
    delete(server, goes)
    send_numbers(server, stays, range(3, 5))
    text = failure(lambda: copied(streamed(spark, server, "", **options), tmp_path))
    assert f"queue 0 of {goes} on broker-a, read up to 3, is not there any more" in text
    copied(streamed(spark, server, "", failOnDataLoss="false", **options), tmp_path)
    assert copied_numbers(tmp_path) == [*range(5), *range(10, 13)]
    servers.new_topic(server, goes, queues=1)
    send_numbers(server, goes, range(20, 22))
    copied(streamed(spark, server, "", **options), tmp_path)
    assert copied_numbers(tmp_path) == [*range(5), *range(10, 13), 20, 21]


def test_one_of_several_topics_goes_and_the_others_are_read_on(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    stays, goes = (servers.new_topic(server, unique("named"), queues=1) for _ in range(2))
    both = f"{stays},{goes}"
    for topic, numbers in ((stays, range(3)), (goes, range(10, 13))):
        send_numbers(server, topic, numbers)
    copied(streamed(spark, server, both, **EARLIEST), tmp_path)
    delete(server, goes)
    send_numbers(server, stays, range(3, 6))
    retries = {"fetchOffset.numRetries": 0}
    text = failure(lambda: copied(streamed(spark, server, both, **EARLIEST, **retries), tmp_path))
    assert f"knows the topic '{goes}'" in text
    options = {"failOnDataLoss": "false", **EARLIEST, **retries}
    copied(streamed(spark, server, both, **options), tmp_path)
    assert copied_numbers(tmp_path) == [*range(6), *range(10, 13)]


def test_queues_that_go_and_come_back_are_read_on_where_they_were(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    topic = servers.new_topic(server, unique("shrunk"), queues=4)
    send_numbers(server, topic, range(40))
    frame = streamed(spark, server, topic, **EARLIEST)
    copied(frame, tmp_path)
    with escrowmq.Admin(server.nameserver) as admin:
        for number, count in ((100, 2), (200, 1), (300, 4)):
            admin.topics.update(topic, read_queues=count, write_queues=count)
            until_queues(server, topic, count)
            send_numbers(server, topic, range(number, number + 8))
            copied(streamed(spark, server, topic, **EARLIEST), tmp_path)
    rows = [*range(40), *range(100, 108), *range(200, 208), *range(300, 308)]
    assert copied_numbers(tmp_path) == rows


def test_unread_rows_of_queues_that_went_are_told_and_read_when_they_are_back(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    topic = servers.new_topic(server, unique("shrunk"), queues=4)
    send_numbers(server, topic, range(20))
    copied(streamed(spark, server, topic, **EARLIEST), tmp_path)
    send_numbers(server, topic, range(20, 40))
    with escrowmq.Admin(server.nameserver) as admin:
        admin.topics.update(topic, read_queues=2, write_queues=2)
        until_queues(server, topic, 2)
        text = failure(lambda: copied(streamed(spark, server, topic, **EARLIEST), tmp_path))
        assert f"queue 2 of {topic} on broker-a, read up to 5, is not there any more" in text
        options = {"failOnDataLoss": "false", **EARLIEST}
        copied(streamed(spark, server, topic, **options), tmp_path)
        assert len(copied_numbers(tmp_path)) == 30
        copied(streamed(spark, server, topic, **EARLIEST), tmp_path)  # it is told once
        admin.topics.update(topic, read_queues=4, write_queues=4)
        until_queues(server, topic, 4)
    copied(streamed(spark, server, topic, **EARLIEST), tmp_path)
    assert copied_numbers(tmp_path) == [*range(40)]


def test_a_topic_that_may_only_be_written_for_a_while_keeps_its_place(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    reads, other = (servers.new_topic(server, unique("perm"), queues=2) for _ in range(2))
    both = f"{reads},{other}"
    send_numbers(server, reads, range(10))
    copied(streamed(spark, server, both, **EARLIEST), tmp_path)
    with escrowmq.Admin(server.nameserver) as admin:
        admin.topics.update(reads, permission="w")
        until_queues(server, reads, 0)
        send_numbers(server, reads, range(10, 14))
        send_numbers(server, other, range(100, 104))
        retries = {"fetchOffset.numRetries": 0, **EARLIEST}
        text = failure(lambda: copied(streamed(spark, server, both, **retries), tmp_path))
        assert f"the topic '{reads}' has no readable queue (perm)" in text
        options = {"failOnDataLoss": "false", **retries}
        copied(streamed(spark, server, both, **options), tmp_path)
        assert copied_numbers(tmp_path) == [*range(10), *range(100, 104)]
        admin.topics.update(reads, permission="rw")
        until_queues(server, reads, 2)
    copied(streamed(spark, server, both, **EARLIEST), tmp_path)
    assert copied_numbers(tmp_path) == [*range(14), *range(100, 104)]


def until_queues(server: Server, topic: str, count: int) -> None:
    """Wait until the name server knows so many queues that may be read."""

    def known() -> bool:
        reply = wire.ask(server.nameserver, 105, {"topic": topic})
        queues = decode_route(reply.body).queue_datas or []
        return sum(one.read_queue_nums for one in queues if one.perm & 4) == count

    until(f"it has {count} queues", known)


def test_another_topic_on_an_old_checkpoint_begins_at_its_beginning(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    one, two = (servers.new_topic(server, unique("set"), queues=1) for _ in range(2))
    send_numbers(server, one, range(3))
    send_numbers(server, two, range(10, 13))
    copied(streamed(spark, server, one, **EARLIEST), tmp_path)
    copied(streamed(spark, server, two, **EARLIEST), tmp_path)
    assert copied_numbers(tmp_path) == [0, 1, 2, 10, 11, 12]


def test_an_offset_behind_the_end_is_a_wrong_option(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    topic = servers.new_topic(server, unique("short"), queues=1)
    send_numbers(server, topic, range(3))
    options = {"startingOffsets": f'{{"{topic}": {{"broker-a": {{"0": 50}}}}}}'}
    text = failure(lambda: copied(streamed(spark, server, topic, **options), tmp_path))
    assert f"startingOffsets puts queue 0 of {topic} on broker-a at 50, and it ends at 3" in text


@pytest.mark.parametrize("count", [1, 2])
def test_brokers_that_are_away_are_waited_for(
    spark: SparkSession, tmp_path: Path, count: int
) -> None:
    parts = Cluster(tmp_path / "cluster", brokers_count=count)
    topic = unique("away")
    try:
        with escrowmq.Admin(parts.nameserver) as admin:
            admin.topics.create(topic, queues=2)

        def send(numbers: range) -> None:
            with escrowmq.Producer(parts.nameserver, group="g", timeout_ms=20_000) as producer:
                for number in numbers:
                    producer.send(topic, str(number).encode())

        reader = spark.readStream.format("escrowmq").option("nameServer", parts.nameserver)
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
        reader = reader.option("fetchOffset.numRetries", 0)
        writer = reader.load().selectExpr("cast(body as string) as n").writeStream.format("text")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.start(str(tmp_path / "out"))
        try:
            send(range(20))
            until("the first are there", lambda: copied_numbers(tmp_path) == [*range(20)])
            parts.brokers[0].kill()
            parts.wait_registered(count - 1)
            if count == 2:
                send(range(20, 30))
                until("the other is read", lambda: copied_numbers(tmp_path) == [*range(30)])
            parts.brokers[0].start()
            parts.wait_registered(count)
            send(range(30, 40))
            until("all", lambda: copied_numbers(tmp_path)[-10:] == [*range(30, 40)])
            assert query.exception() is None
        finally:
            query.stop()
    finally:
        parts.kill()
