"""Halves that are not ended in time, as a stream: batches of a log, one file each."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .messages import START, Log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pyspark")

from pyspark.sql import functions as F

from escrowmq.pipeline.reconcile import stream
from escrowmq.pipeline.reconcile.stream import STATE_STORE, OverdueWatch, StreamTimeouts, overdue

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
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
        """All batches that are new, one after the other."""
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


def test_a_broker_whose_clock_is_ahead_makes_no_half_of_others_overdue(
    rocks: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def say_time(at: dt.datetime) -> None:
        monkeypatch.setattr(stream, "_machine_time", lambda: F.lit(at))

    feed, ahead = Feed(rocks, tmp_path), Log("broker-b")
    feed.log.rows.append(ahead.half("ahead", age_s=-3_600))
    feed.flush()
    feed.log.half("stuck", age_s=5)
    feed.flush()
    say_time(START)
    assert feed.run() == []
    feed.log.half("young", age_s=-300)
    feed.flush()
    feed.log.half("younger", age_s=-350)
    feed.flush()
    say_time(START + dt.timedelta(seconds=350))
    told = {row["messageId"]: row["evidence"]["ageSeconds"] for row in feed.run()}
    assert told.keys() == {"ahead", "stuck"}


class Watched:
    """An `OverdueWatch` with the state and the timers of one half, stored at 0."""

    def __init__(self, look: Callable[[str, str, str], bool] | None) -> None:
        self.timers: list[int] = []
        self.now_ms = 0
        self._state: Any = None
        self._watch = OverdueWatch(PATIENCE, look)
        self._watch.init(self)

    def getValueState(self, name: str, schema: str) -> Watched:  # noqa: N802 - Spark's names
        return self

    def registerTimer(self, at_ms: int) -> None:  # noqa: N802
        self.timers.append(at_ms)

    def getCurrentWatermarkInMs(self) -> int:  # noqa: N802
        return self.now_ms

    def exists(self) -> bool:
        return self._state is not None

    def get(self) -> Any:
        return self._state

    def update(self, state: Any) -> None:
        self._state = state

    def clear(self) -> None:
        self._state = None

    def ages_told(self, immunity_s: int = 0) -> list[str]:
        """The ages in seconds at which it is reported."""
        key, row = ("broker-a", "stuck"), {"topic": "paid", "producerGroup": "g", "at": EPOCH}
        row["immunityS"] = immunity_s
        self.now_ms = PATIENCE.overdue_s * 1000
        told: list[Any] = list(self._watch.handleInputRows(key, iter([row]), self))
        while self.timers:
            self.now_ms = self.timers.pop()
            told += self._watch.handleExpiredTimer(key, self, None)
        assert not self.exists()
        return [row["evidence"]["ageSeconds"] for row in told]


def test_nothing_is_told_again_of_which_nobody_knows_whether_it_has_ended() -> None:
    assert Watched(is_open({"stuck"})).ages_told() == ["100", "300", "500"]
    assert Watched(is_open(set())).ages_told() == []
    assert Watched(None).ages_told() == ["100"]


def test_nothing_is_told_before_the_time_that_its_producer_requested() -> None:
    assert Watched(is_open({"stuck"})).ages_told(450) == ["450", "650", "850"]
    assert Watched(None).ages_told(450) == []
