"""Topics with known messages, and frames of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import escrowmq
from tests.interop.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GROUP = "spark-tests"


def send_numbers(server: Server, topic: str, numbers: Iterable[int], *, tag: str = "") -> None:
    """One message a number, round the queues; the body is the number, as are its properties."""
    with escrowmq.Producer(server.nameserver, group=GROUP) as producer:
        for number in numbers:
            producer.send(
                topic,
                str(number).encode(),
                tag=tag or "ab"[number % 2],
                properties={"n": str(number)},
            )


def loaded(spark: SparkSession, server: Server, topic: str, **options: object) -> DataFrame:
    """A batch of a topic; `_` in a name of an option stands for a dot."""
    return _with(spark.read.format("escrowmq"), server, topic, options).load()


def streamed(spark: SparkSession, server: Server, topic: str, **options: object) -> DataFrame:
    """A stream of a topic."""
    return _with(spark.readStream.format("escrowmq"), server, topic, options).load()


def _with(reader: Any, server: Server, topic: str, options: dict[str, object]) -> Any:
    reader = reader.option("nameServer", server.nameserver)
    if topic:
        reader = reader.option("subscribe", topic)
    for name, value in options.items():
        reader = reader.option(name.replace("_", "."), str(value))
    return reader


def numbers_of(frame: DataFrame) -> list[int]:
    """The numbers in a frame, sorted; one that came twice is there twice."""
    return sorted(int(row.body) for row in frame.select("body").collect())


def copied(frame: DataFrame, folder: Path, *, once: bool = False) -> Any:
    """Write what is there of a stream to files, and wait for the end; the query. A second call
    continues where the first one ended."""
    writer = frame.selectExpr("cast(body as string) as n").writeStream.format("text")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    trigger = {"once": True} if once else {"availableNow": True}
    query = writer.trigger(**trigger).start(str(folder / "out"))
    query.awaitTermination()
    return query


def copied_numbers(folder: Path) -> list[int]:
    """What `copied` has written, as far as its batches are committed."""
    found = []
    log = folder / "out" / "_spark_metadata"
    for batch in log.glob("[0-9]*"):
        for line in batch.read_text().splitlines()[1:]:
            path = line.partition('"path":"')[2].partition('"')[0].removeprefix("file://")
            found += [int(number) for number in Path(path).read_text().split()]
    return sorted(found)
