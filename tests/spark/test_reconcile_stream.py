"""Halves that are not ended in time, as a stream: batches of a log, one file each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .messages import START, Log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pyspark")

from escrowmq.pipeline.reconcile.stream import STATE_STORE, StreamTimeouts, overdue

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
PATIENCE = StreamTimeouts(skew_s=10, overdue_s=100, again_s=200, times_max=3)


@pytest.fixture
def rocks(spark: SparkSession) -> Iterator[SparkSession]:
    before = spark.conf.get(PROVIDER)
    spark.conf.set(PROVIDER, STATE_STORE)
    yield spark
    spark.conf.set(PROVIDER, before)


class Feed:
    """Files that come one after the other."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._count = 0
        self.log = Log()

    def flush(self) -> None:
        """What was put is one batch."""
        target = self._folder / "in" / f"{self._count:03d}"
        self.log.table(self._spark).coalesce(1).write.parquet(str(target))
        for each in target.glob("*.parquet"):
            os.utime(each, (1_700_000_000 + self._count,) * 2)
        self._count += 1
        self.log.rows.clear()

    def run(self, **more: Any) -> list[Any]:
        """All batches, one after the other."""
        found: list[Any] = []

        def take(frame: DataFrame, _: int) -> None:
            found.extend(frame.collect())

        schema = self._spark.read.parquet(str(self._folder / "in" / "000")).schema
        messages = (
            self._spark.readStream.schema(schema)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self._folder / "in" / "*"))
        )
        query = (
            overdue(messages, patience=PATIENCE, **more)
            .writeStream.foreachBatch(take)
            .outputMode("append")
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return found


def is_open(keys: set[str]) -> Callable[[str, str, str], bool]:
    def look(broker: str, topic: str, message_id: str) -> bool:
        return message_id in keys

    return look


def test_what_is_not_ended_in_time_is_told_again_and_again(
    rocks: SparkSession, tmp_path: Path
) -> None:
    feed = Feed(rocks, tmp_path)
    log = feed.log
    ended, late, stuck = log.half("ended"), log.half("late"), log.half("stuck")
    log.half("asked")
    log.op(ended, outcomes="c")
    feed.flush()
    # From here on nobody ends anything: the halves alone move the time.
    for age_s in (800, 700, 500, 300, 100, 0):
        log.half(f"young {age_s}", age_s=age_s)
        if age_s == 700:
            log.op(late, log.rows[-1], outcomes="rr")
        feed.flush()
    told = feed.run(look=is_open({"stuck", "young 800", "young 500", "young 300"}))
    by_key: dict[str, list[Any]] = {}
    for row in told:
        by_key.setdefault(row["messageId"], []).append(row)
    assert [row["evidence"]["told"] for row in by_key["stuck"]] == ["1", "2", "3"]
    assert "ended" not in by_key
    assert "asked" not in by_key, "who was asked said that it is settled"
    assert "young 100" not in by_key
    first = by_key["stuck"][0]
    assert (first["class"], first["topic"], first["broker"]) == ("overdue", "paid", "broker-a")
    assert first["at"].timestamp() == START.timestamp() - 1000
    assert stuck["queueOffset"] == 2
