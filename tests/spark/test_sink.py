"""`df.write` and `writeStream` into EscrowMQ's topics."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import escrowmq
from tests.interop import servers
from tests.interop.drivers import unique
from tests.interop.process import until
from tests.interop.servers import Server

from .test_source import failure
from .topics import loaded, numbers_of, send_numbers, streamed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pyspark")

from escrowmq.base.message import Property
from escrowmq.pipeline.brokers.keyed_sends import KeyedSender
from escrowmq.pipeline.brokers.options import ClusterAccess
from escrowmq.pipeline.copies.replay import (
    SOURCE_COLUMNS,
    ReplayTarget,
    mark_copied,
    send_copies,
    with_copy_keys,
)
from escrowmq.pipeline.threads import in_session


def written(frame: DataFrame, server: Server, **options: object) -> None:
    """Write a frame."""
    writer = frame.write.format("escrowmq").option("nameServer", server.nameserver)
    for name, value in options.items():
        writer = writer.option(name, str(value))
    writer.mode("append").save()


def test_rows_become_messages(spark: SparkSession, server: Server, topic: str) -> None:
    other = servers.new_topic(server, unique("other"))
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=1)
    rows = [
        (other, "one", "tag", ["k1", "k2"], {"a": "1"}, None),
        (other, "two", None, None, None, None),
        (topic, "three", None, [], {}, soon),
    ]
    schema = (
        "topic string, body string, tags string, keys array<string>, "
        "properties map<string,string>, deliverTime timestamp"
    )
    written(spark.createDataFrame(rows, schema), server)
    found = {bytes(row.body): row for row in loaded(spark, server, other).collect()}
    assert set(found) == {b"one", b"two"}
    one = found[b"one"]
    assert (one.tags, one.keys, one.properties["a"]) == ("tag", ["k1", "k2"], "1")
    consumer = escrowmq.Consumer(
        server.nameserver, group=unique("g"), topic=topic, consume_from="first"
    )
    with consumer:
        message = next(iter(consumer))
    assert message.body == b"three"
    assert message.stored_ms >= int(soon.timestamp() * 1000) - 100


def test_a_row_of_a_topic_is_written_to_another_whatever_its_sender_chose(
    spark: SparkSession, server: Server
) -> None:
    """RocketMQ's clients send such a tag. Each copy of the topic failed at it, in every run."""
    topic, *others = (servers.new_topic(server, unique("odd"), queues=1) for _ in range(4))
    with KeyedSender(ClusterAccess(name_servers=(server.nameserver,)), group="g") as sender:
        for key, odd in (("K1", {Property.TAGS: "a || b"}), ("K2", {})):
            message = escrowmq.Message(topic, b"x", tag="plain", keys=["k"], properties={"n": "1"})
            sender.send(message, key=key, properties=odd)
    rows = loaded(spark, server, topic).select("body", "tags", "keys", "properties")
    written(rows, server, topic=others[0])
    written(rows, server, topic=others[1], transactional="true", producerGroup=unique("odd"))
    target = ReplayTarget(access=ClusterAccess(name_servers=(server.nameserver,)), topic=others[2])
    source = loaded(spark, server, topic).select(
        *(column.split()[0] for column in SOURCE_COLUMNS.split(", "))
    )
    send_copies(mark_copied(with_copy_keys(source, topic=target.topic), None), target).collect()
    for other in others:
        found = loaded(spark, server, other).collect()
        assert sorted(row.tags for row in found) == ["a || b", "plain"]
        assert {(*row.keys, row.properties["n"], row.body) for row in found} == {("k", "1", b"x")}


@pytest.mark.versions
def test_many_rows_in_batches_and_one_by_one(
    spark: SparkSession, server: Server, topic: str
) -> None:
    frame = spark.range(3_000).selectExpr("cast(id as string) as body").repartition(3)
    written(frame, server, topic=topic)
    written(frame.limit(50), server, topic=topic, batchSize=1)
    rows = loaded(spark, server, topic)
    assert rows.select("body").distinct().count() == 3_000
    assert rows.count() == 3_050
    assert rows.select("msgId").distinct().count() == 3_050


def test_rows_of_one_key_stay_in_order(spark: SparkSession, server: Server, topic: str) -> None:
    frame = spark.range(2_000).selectExpr("cast(id as string) as body", "id % 7 as customer")
    for options in ({}, {"transactional": "true", "producerGroup": unique("ordered")}):
        written(
            frame.repartition(2, "customer"), server, topic=topic, orderBy="customer", **options
        )
    seen: dict[tuple[int, bool], list[tuple[int, int]]] = {}
    for row in loaded(spark, server, topic).collect():
        number = int(row.body)
        key = (number % 7, row.transactionId is None)
        seen.setdefault(key, []).append((row.queueOffset, number))
        assert row.queueId is not None
    for rows in seen.values():
        numbers = [number for _, number in sorted(rows)]
        assert numbers == sorted(numbers)


@pytest.mark.versions
def test_a_transactional_write_is_seen_whole_and_once(
    spark: SparkSession, server: Server, topic: str
) -> None:
    frame = spark.range(500).selectExpr("cast(id as string) as body")
    options = {"topic": topic, "transactional": "true", "producerGroup": unique("tx")}
    job = {"txnAppId": "nightly", "txnVersion": 1, **options}
    written(frame, server, **job)
    written(frame, server, **job)
    assert numbers_of(loaded(spark, server, topic)) == [*range(500)]
    written(
        frame.selectExpr("cast(body + 500 as string) as body"), server, **job | {"txnVersion": 2}
    )
    assert "larger number is done" in failure(lambda: written(frame, server, **job))
    assert numbers_of(loaded(spark, server, topic)) == [*range(1_000)]
    other = servers.new_topic(server, unique("other"))
    written(frame, server, **job | {"topic": other})
    assert loaded(spark, server, other).count() == 500, "each topic counts by itself"


def test_a_write_that_fails_shows_nothing(spark: SparkSession, server: Server, topic: str) -> None:
    frame = spark.range(300).selectExpr(
        "case when id = 299 then null else cast(id as string) end as body"
    )
    options = {"topic": topic, "transactional": "true", "producerGroup": unique("tx")}
    text = failure(lambda: written(frame, server, **options))
    assert "has no body (null)" in text
    assert loaded(spark, server, topic).count() == 0
    with escrowmq.Admin(server.nameserver) as admin:
        until("nothing is pending", lambda: admin.transactions.count(topic=topic).count == 0)


@pytest.mark.versions
def test_a_stream_is_written_exactly_once_over_a_restart(
    spark: SparkSession, server: Server, topic: str, tmp_path: Path
) -> None:
    target = servers.new_topic(server, unique("target"))
    for numbers in (range(30), range(30, 50)):
        send_numbers(server, topic, numbers)
        frame = streamed(spark, server, topic, startingOffsets="earliest", maxOffsetsPerTrigger=20)
        writer = frame.select("body", "tags", "properties").writeStream.format("escrowmq")
        writer = writer.option("nameServer", server.nameserver).option("topic", target)
        writer = writer.option("transactional", "true").option("producerGroup", "stream-sink")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()
    assert numbers_of(loaded(spark, server, target)) == [*range(50)]
    assert (tmp_path / "checkpoint" / "escrowmq-sink.json").exists()


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        ("id", {}, "a column `body` is needed"),
        ("cast(id as string) as body, id as more", {}, "a column 'more' has no meaning"),
        ("id as body", {}, "the column body has the type bigint; binary or string is expected"),
        (
            "'x' as body, 1 as delayLevel",
            {"transactional": "true", "producerGroup": "g"},
            "do not go together",
        ),
        ("'x' as body", {"transactional": "true"}, "needs producerGroup"),
    ],
)
def test_what_cannot_be_written_is_refused(
    spark: SparkSession, server: Server, columns: str, options: dict[str, str], text: str
) -> None:
    frame = spark.range(3).selectExpr(*columns.split(", "))
    assert text in failure(lambda: written(frame, server, topic="t", **options))


def test_a_topic_is_not_overwritten(spark: SparkSession, server: Server, topic: str) -> None:
    frame = spark.range(3).selectExpr("cast(id as string) as body").write.format("escrowmq")
    frame = frame.option("nameServer", server.nameserver).option("topic", topic)
    assert "use mode('append')" in failure(lambda: frame.mode("overwrite").save())


def test_plain_rows_that_cannot_be_stored_fail_the_job(
    spark: SparkSession, own_server: Callable[..., Server]
) -> None:
    server = own_server(autoCreateTopicEnable=False)
    frame = spark.range(10).selectExpr("cast(id as string) as body")
    assert "no-such" in failure(lambda: written(frame, server, topic="no-such", retries=0))


@pytest.mark.versions
def test_threads_of_a_pool_write_in_the_session_that_they_are_given(
    spark: SparkSession, server: Server
) -> None:
    topics = [servers.new_topic(server, unique("pool")) for _ in range(2)]
    frame = spark.createDataFrame([("x",)], "body string")

    def write(topic: str) -> None:
        writer = frame.write.format("escrowmq").option("nameServer", server.nameserver)
        writer.option("topic", topic).mode("append").save()

    with ThreadPoolExecutor(2) as pool, pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
        list(pool.map(write, topics))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(in_session(spark, write), topics))
    for topic in topics:
        assert loaded(spark, server, topic).count() == 1
