"""`spark.read.format("escrowmq")` on EscrowMQ's broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import escrowmq
from escrowmq.net.clock import SystemClock
from tests.interop import servers
from tests.interop.drivers import unique
from tests.interop.process import until
from tests.interop.servers import Server

from .topics import copied, loaded, numbers_of, send_numbers, streamed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def failure(work: Callable[[], object]) -> str:
    """The text with which Spark refuses."""
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as seen:
        work()
    return str(seen.value)


@pytest.mark.versions
def test_rows_are_what_the_sdk_consumes(spark: SparkSession, server: Server, topic: str) -> None:
    with escrowmq.Producer(server.nameserver, group="g") as producer:
        sent = [
            producer.send(topic, b"one", tag="a", keys=["k1", "k2"], properties={"colour": "röd"}),
            producer.send(topic, b"x" * 20_000),
            *producer.send_many(
                [escrowmq.Message(topic, f"b{number}".encode()) for number in range(3)]
            ),
        ]
        with producer.transaction(topic, b"committed") as tx:
            pass
        with producer.transaction(topic, b"rolled back") as rolled_back:
            rolled_back.rollback()
    rows = {row.msgId: row for row in loaded(spark, server, topic).collect()}
    assert len(rows) == 6
    for result in sent:
        row = rows[result.message_id]
        where = (row.topic, row.brokerName, row.queueId, row.queueOffset, row.offsetMsgId)
        queue = result.queue
        assert where == (topic, queue.broker_name, queue.queue_id, result.offset, result.offset_id)
        assert row.transactionId is None
    first = rows[sent[0].message_id]
    assert (first.body, first.tags, first.keys) == (b"one", "a", ["k1", "k2"])
    assert first.properties["colour"] == "röd"
    assert first.storeTimestamp >= first.bornTimestamp
    assert first.bornHost.startswith("127.0.0.1:")
    assert first.storeHost == server.broker
    assert rows[sent[1].message_id].body == b"x" * 20_000
    committed = rows[tx.results[0].message_id]
    assert committed.transactionId == tx.results[0].message_id
    assert committed.preparedTransactionOffset > 0


def test_places_by_offset_and_time(spark: SparkSession, server: Server, topic: str) -> None:
    send_numbers(server, topic, range(40))
    rows = loaded(spark, server, topic).collect()
    queues: dict[int, list[int]] = {}
    for row in sorted(rows, key=lambda row: row.queueOffset):
        queues.setdefault(row.queueId, []).append(int(row.body))
    low = {topic: {"broker-a": {str(queue): 2 for queue in range(4)}}}
    high = {topic: {"broker-a": {"0": 5, "1": -1, "2": 3, "3": 2}}}
    options = {"startingOffsets": json.dumps(low), "endingOffsets": json.dumps(high)}
    wanted = queues[0][2:5] + queues[1][2:] + queues[2][2:3]
    assert numbers_of(loaded(spark, server, topic, **options)) == sorted(wanted)
    moment_ms = int(max(row.storeTimestamp.timestamp() for row in rows) * 1000) + 1
    until("the clock has moved", lambda: SystemClock().now_ms() > moment_ms)
    send_numbers(server, topic, range(100, 104))
    later = loaded(spark, server, topic, startingTimestamp=moment_ms)
    assert numbers_of(later) == [*range(100, 104)]
    earlier = loaded(spark, server, topic, endingTimestamp=moment_ms)
    assert numbers_of(earlier) == [*range(40)]
    times = json.dumps({topic: moment_ms})
    assert numbers_of(loaded(spark, server, topic, startingOffsetsByTimestamp=times)) == (
        numbers_of(later)
    )
    text = failure(lambda: loaded(spark, server, topic, startingTimestamp=1 << 42).collect())
    assert "has no message from" in text
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    assert numbers_of(loaded(spark, server, topic, startingTimestamp=1 << 42, **strategy)) == []


def test_topics_by_list_pattern_and_assignment(spark: SparkSession, server: Server) -> None:
    names = [servers.new_topic(server, unique("list"), queues=2) for _ in range(2)]
    for index, name in enumerate(names):
        send_numbers(server, name, [index, index + 10])
    assert numbers_of(loaded(spark, server, ",".join(names))) == [0, 1, 10, 11]
    pattern = f"{names[0]}|{names[1][:-1]}."
    assert numbers_of(loaded(spark, server, "", subscribePattern=pattern)) == [0, 1, 10, 11]
    queues = json.dumps({names[0]: {"broker-a": [1]}})
    rows = loaded(spark, server, "", assign=queues).select("topic", "queueId").collect()
    assert {tuple(row) for row in rows} == {(names[0], 1)}
    bad = json.dumps({names[0]: {"broker-a": [7]}})
    text = failure(lambda: loaded(spark, server, "", assign=bad).collect())
    assert "names queue 7" in text
    assert "there are 0, 1 on broker-a" in text


@pytest.mark.versions
def test_filters_of_the_broker(spark: SparkSession, server: Server, topic: str) -> None:
    # "AaBB" and "BBAa" have the same hash, by which brokers compare.
    with escrowmq.Producer(server.nameserver, group="g") as producer:
        for number in range(30):
            tag = ("AaBB", "BBAa", "c")[number % 3]
            producer.send(topic, str(number).encode(), tag=tag, properties={"n": str(number)})
    wanted = [number for number in range(30) if number % 3 == 0]
    assert numbers_of(loaded(spark, server, topic, tags="AaBB")) == wanted
    wanted = [number for number in range(30) if number % 3]
    assert numbers_of(loaded(spark, server, topic, tags="BBAa || c")) == wanted
    assert numbers_of(loaded(spark, server, topic, sqlFilter="n > 25")) == [26, 27, 28, 29]
    assert numbers_of(loaded(spark, server, topic, tags="nothing")) == []


def test_columns_by_hand(spark: SparkSession, server: Server, topic: str) -> None:
    send_numbers(server, topic, range(3))
    options = {"includeBody": "false", "properties": "string"}
    row = loaded(spark, server, topic, **options).where("properties like '%n_1%'").first()
    assert "body" not in row.asDict()
    assert "\x01" in row.properties
    reader = spark.read.format("escrowmq").schema("queueOffset bigint, tags string")
    frame = reader.option("nameServer", server.nameserver).option("subscribe", topic).load()
    assert frame.columns == ["queueOffset", "tags"]
    assert sorted(row.tags for row in frame.collect()) == ["a", "a", "b"]
    wrong = spark.read.format("escrowmq").schema("queueOffset int")
    wrong = wrong.option("nameServer", server.nameserver).option("subscribe", topic)
    assert "it has bigint, cast it" in failure(lambda: wrong.load().collect())


@pytest.mark.versions
def test_columns_that_are_never_null_say_so(
    spark: SparkSession, server: Server, topic: str
) -> None:
    with escrowmq.Producer(server.nameserver, group="g") as producer:
        producer.send(topic, b"plain")
        producer.send(topic, b"tagged", tag="a", keys=["k"])
    frame = loaded(spark, server, topic)
    may_be_null = {field.name for field in frame.schema if field.nullable}
    assert may_be_null == {"brokerName", "tags", "keys", "transactionId"}
    rows = {row.body: row for row in frame.collect()}
    plain, tagged = rows[b"plain"], rows[b"tagged"]
    assert (plain.tags, plain.keys, plain.transactionId) == (None, None, None)
    assert (tagged.tags, tagged.keys) == ("a", ["k"])
    for row in rows.values():
        assert {name for name, value in row.asDict().items() if value is None} <= may_be_null


@pytest.mark.versions
def test_a_schema_of_ones_own_may_say_that_values_can_be_null(
    spark: SparkSession, server: Server, topic: str
) -> None:
    send_numbers(server, topic, range(3))
    reader = spark.read.format("escrowmq").schema(
        "properties map<string,string>, queueOffset bigint, keys array<string>"
    )
    frame = reader.option("nameServer", server.nameserver).option("subscribe", topic).load()
    assert all(field.nullable for field in frame.schema)
    assert sorted(row.properties["n"] for row in frame.collect()) == ["0", "1", "2"]


def test_partitions_are_cut_and_put_together(
    spark: SparkSession, server: Server, topic: str
) -> None:
    send_numbers(server, topic, range(40))
    counts = {
        "minPartitions": 8,
        "maxPartitions": 2,
        "maxRecordsPerPartition": 2,
    }
    for (name, value), expected in zip(counts.items(), (8, 2, 20), strict=True):
        frame = loaded(spark, server, topic, **{name: value})
        assert numbers_of(frame) == [*range(40)]
        assert frame.rdd.getNumPartitions() >= expected or name == "maxPartitions"
        assert frame.rdd.getNumPartitions() <= expected + 4


def test_an_empty_topic_has_no_rows(spark: SparkSession, server: Server, topic: str) -> None:
    assert loaded(spark, server, topic).collect() == []


def test_a_topic_that_is_not_there(spark: SparkSession, server: Server) -> None:
    options = {"fetchOffset_retryIntervalMs": "10ms"}
    text = failure(lambda: loaded(spark, server, "no-such-topic", **options).collect())
    assert "no name server knows the topic 'no-such-topic'" in text


@pytest.mark.versions
def test_conditions_cut_what_is_read(spark: SparkSession, server: Server, topic: str) -> None:
    """The same rows with the setting on and off; that less is read, the metrics of the scan say."""
    send_numbers(server, topic, range(40))
    conditions = [
        "queueId = 1 and queueOffset >= 3",
        "queueId in (0, 2) and queueOffset < 4",
        "topic = 'another'",
        "storeTimestamp > timestamp'2100-01-01'",
        "storeTimestamp < timestamp'2000-01-01'",
        "queueOffset between 2 and 5 and brokerName = 'broker-a'",
    ]
    setting = "spark.sql.python.filterPushdown.enabled"
    plain = [numbers_of(loaded(spark, server, topic).where(each)) for each in conditions]
    spark.conf.set(setting, "true")
    try:
        for condition, expected in zip(conditions, plain, strict=True):
            frame = loaded(spark, server, topic).where(condition)
            assert numbers_of(frame) == expected
        frame = loaded(spark, server, topic).where("queueId = 1")
        assert frame.rdd.getNumPartitions() == 1
        off = loaded(spark, server, topic, pushFilters="false").where("queueId = 1")
        assert off.rdd.getNumPartitions() == 4
    finally:
        spark.conf.set(setting, "false")


@pytest.mark.versions
def test_sql_finds_the_source_by_its_name(spark: SparkSession, server: Server, topic: str) -> None:
    send_numbers(server, topic, range(5))
    spark.sql(
        f"create or replace temporary view messages using escrowmq "
        f"options (nameServer '{server.nameserver}', subscribe '{topic}')"
    )
    assert spark.sql("select count(*), max(properties['n']) from messages").first()[:] == (5, "4")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscrbe": "x"}, "there is no option 'subscrbe' here; is subscribe meant?"),
        ({"startingOffsets": "soon"}, "one of earliest, latest, group:NAME, JSON is expected"),
        ({"maxPartitions": "-1"}, "a whole number from 0 to 2147483647 is expected"),
        ({"secretKey": "x", "accessKey": "y"}, "put it into a file"),
    ],
)
def test_wrong_options_are_refused_before_anything_runs(
    spark: SparkSession, server: Server, options: dict[str, str], text: str
) -> None:
    assert text in failure(lambda: loaded(spark, server, "t", **options))


def test_an_end_that_is_not_there_is_refused_before_anything_is_read(
    spark: SparkSession, server: Server, topic: str
) -> None:
    send_numbers(server, topic, range(8))
    ends = {topic: {"broker-a": {str(queue): 50 for queue in range(4)}}}
    text = failure(lambda: loaded(spark, server, topic, endingOffsets=json.dumps(ends)).collect())
    assert f"endingOffsets puts queue 0 of {topic} on broker-a at 50, and it ends at 2" in text
    options = {"endingOffsets": json.dumps(ends), "failOnDataLoss": "false"}
    assert numbers_of(loaded(spark, server, topic, **options)) == [*range(8)]


def test_what_a_stream_cannot_have_is_the_last_thing_said(
    spark: SparkSession, server: Server, topic: str, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    with pytest.raises(StreamingQueryException) as seen:
        copied(streamed(spark, server, topic, endingOffsets="latest"), tmp_path)
    text = str(seen.value)
    assert "a stream has no end; ending options are for spark.read" in text
    assert "UnboundLocalError" not in text
