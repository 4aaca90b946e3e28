"""`storePath`: a store's log files as a table, without a broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import escrowmq
from escrowmq.base.message import Message
from escrowmq.codec.record_layout import HEAD_V4
from escrowmq.errors import CorruptRecord
from tests.interop import jars, servers
from tests.interop.drivers import unique
from tests.interop.servers import Server

from .injected import NOW_MS, StoreWriter
from .test_source import failure
from .topics import loaded, numbers_of, send_numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEGMENT_SIZE = 1 << 20


def stored(spark: SparkSession, folder: Path, **options: object) -> DataFrame:
    reader = spark.read.format("escrowmq").option("storePath", str(folder))
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


@pytest.mark.parametrize(
    "kind", ["escrow", pytest.param("java", marks=[pytest.mark.long, pytest.mark.interop])]
)
def test_files_have_what_the_broker_tells(
    spark: SparkSession, own_server: Callable[..., Server], kind: str
) -> None:
    if kind == "java" and jars.missing_tools("mvn", "cc"):
        pytest.skip("needs Maven and a C compiler")
    server = own_server(kind, mappedFileSizeCommitLog=SEGMENT_SIZE)
    first, second = (servers.new_topic(server, unique("files")) for _ in range(2))
    send_numbers(server, first, range(200))
    with escrowmq.Producer(server.nameserver, group="g") as producer:
        for _ in range(60):
            producer.send(second, bytes(range(256)) * 200, tag="large")
        with producer.transaction(second, b"done"):
            pass
    columns = ["queueId", "queueOffset", "msgId", "offsetMsgId", "tags", "body", "physicalOffset"]
    told = {
        topic: loaded(spark, server, topic).select(columns).collect() for topic in (first, second)
    }
    server.stop()
    for topic, rows in told.items():
        found = stored(spark, server.store, subscribe=topic, splitBytes="1m")
        assert set(map(repr, found.select(columns).collect())) == set(map(repr, rows))
        assert found.count() == len(rows)
    assert stored(spark, server.store).count() == 261, "no system topics unless they are wanted"
    half = stored(spark, server.store, includeSystemTopics="true", tags="large || x")
    assert {row.topic for row in half.select("topic").distinct().collect()} == {second}
    pattern = stored(spark, server.store, subscribePattern=f"{first}.*")
    assert numbers_of(pattern) == [*range(200)]


def read_here(folder: Path, **options: str) -> int:
    """The rows that executors would read, counted in this process."""
    from escrowmq.pipeline.source.files import FilesReader
    from escrowmq.pipeline.source.options import parse_source_options
    from escrowmq.pipeline.source.schema import full_schema

    parsed = parse_source_options({"storePath": str(folder), **options}, is_stream=False)
    reader = FilesReader(parsed, full_schema(parsed))
    return sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))


@pytest.mark.long
def test_damage_is_told_and_never_passed_over_in_silence(
    spark: SparkSession, own_server: Callable[..., Server]
) -> None:
    server = own_server()
    topic = servers.new_topic(server, unique("T"))
    send_numbers(server, topic, range(100))
    places = sorted(row.physicalOffset for row in loaded(spark, server, topic).collect())
    server.stop()
    assert read_here(server.store) == 100
    file = next((server.store / "commitlog").iterdir())
    with file.open("r+b") as log:
        log.seek(places[40] + HEAD_V4.size)
        log.write(b"\xff")  # in a body
    with pytest.raises(CorruptRecord, match=r"is not what was stored \(CRC\)"):
        read_here(server.store)
    assert read_here(server.store, checkCrc="false") == 100
    with file.open("r+b") as log:
        log.seek(places[40] + 4)
        log.write(b"\0\0\0\0")  # the magic
    told = f"has no record at byte {places[40]} .* the next one is at byte {places[41]}"
    with pytest.raises(CorruptRecord, match=told):
        read_here(server.store)
    assert read_here(server.store, failOnDataLoss="false") == 99


def test_patterns_of_topics_are_pythons_with_files_too(tmp_path: Path) -> None:
    log = StoreWriter(tmp_path, segment_size=4096)
    for topic in ("paid", "paid-old", "shipped"):
        log.put(Message(topic=topic, body=b"b"), stored_ms=NOW_MS)
    log.close()
    assert read_here(tmp_path, subscribePattern="(?!.*-old).*") == 2
    assert read_here(tmp_path, subscribePattern="paid|x") == 1


def test_folders_without_a_log_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    assert "has no log" in failure(lambda: stored(spark, tmp_path).collect())
    assert "cannot be read" in failure(lambda: stored(spark, tmp_path / "none").collect())
