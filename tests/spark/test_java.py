"""Source and sink on Apache RocketMQ's own broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import escrowmq
from tests.interop import jars, servers
from tests.interop.drivers import unique
from tests.interop.process import until
from tests.interop.servers import Server

from .test_sink import written
from .test_source import failure
from .topics import copied, copied_numbers, loaded, numbers_of, send_numbers, streamed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

make_batch_writer = pytest.importorskip("escrowmq.pipeline.sink.writers").make_batch_writer
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(
        bool(jars.missing_tools("java", "mvn", "cc")), reason="needs Java, Maven and a C compiler"
    ),
]

PATIENT_MS = 60_000
"""A broker whose code is still being compiled may need longer for an answer than the sink waits by
default. Rows are sent again then, and would be there twice."""


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server("java", tmp_path_factory.mktemp("java"), {"enablePropertyFilter": True})
    yield server.start()
    server.kill()


@pytest.mark.long
def test_batches_and_streams_are_read(spark: SparkSession, java: Server, tmp_path: Path) -> None:
    topic = servers.new_topic(java, unique("java"))
    send_numbers(java, topic, range(150))
    with escrowmq.Producer(java.nameserver, group="g") as producer:
        batch = [escrowmq.Message(topic, str(n).encode(), tag="b") for n in range(150, 170)]
        producer.send_many(batch)
        producer.send(topic, b"999" * 4_000, tag="big")
        with producer.transaction(topic, b"170", tag="b") as tx:
            pass
    rows = loaded(spark, java, topic).where("tags <> 'big'")
    assert numbers_of(rows) == [*range(171)]
    assert loaded(spark, java, topic, tags="big").first().body == b"999" * 4_000
    done = rows.where("transactionId is not null").collect()
    assert [row.msgId for row in done] == [tx.results[0].message_id]
    assert done[0].preparedTransactionOffset > 0
    # RocketMQ writes the batch's own properties behind those of its messages.
    assert rows.selectExpr("cardinality(properties) as n", "properties.WAIT").distinct().count() > 0
    options = {"startingOffsets": "earliest", "tags": "b", "maxOffsetsPerTrigger": 100}
    copied(streamed(spark, java, topic, **options), tmp_path)
    expected = [n for n in range(150) if n % 2] + [*range(150, 171)]
    assert copied_numbers(tmp_path) == expected
    assert numbers_of(loaded(spark, java, topic, sqlFilter="n > 147")) == [148, 149]


def test_exactly_once_is_refused_or_said_to_be_less(
    spark: SparkSession, java: Server, caplog: pytest.LogCaptureFixture
) -> None:
    topic = servers.new_topic(java, unique("java"))
    frame = spark.range(50).selectExpr("cast(id as string) as body")
    options: dict[str, Any] = {
        "topic": topic,
        "transactional": "true",
        "producerGroup": unique("tx"),
        "sendTimeoutMs": PATIENT_MS,
    }
    text = failure(lambda: written(frame, java, **options))
    assert "transactional=true is impossible there" in text
    assert loaded(spark, java, topic).count() == 0
    options |= {"onStockBroker": "at-least-once", "txnAppId": "job", "txnVersion": 1}
    for _ in range(2):
        written(frame, java, **options)
    rows = loaded(spark, java, topic)
    assert rows.count() == 100
    assert rows.select("msgId").distinct().count() == 50, "the same rows have the same keys"
    given = {"nameServer": java.nameserver, **{name: str(value) for name, value in options.items()}}
    make_batch_writer(given, frame.schema, overwrite=False)
    assert "rows may be delivered twice after a failure" in caplog.text


def test_plain_rows_are_stored(spark: SparkSession, java: Server) -> None:
    topic = servers.new_topic(java, unique("java"))
    frame = spark.range(400).selectExpr("cast(id as string) as body")
    written(frame, java, topic=topic, sendTimeoutMs=PATIENT_MS)
    # Java's broker shows stored messages a little later.
    until("all", lambda: numbers_of(loaded(spark, java, topic)) == [*range(400)])
