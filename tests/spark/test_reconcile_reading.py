"""What runs read of a broker's queues: clocks that were set back, and older copies of halves."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

from escrowmq.base.message import Topic
from escrowmq.pipeline.reconcile.lease import FileLease
from escrowmq.pipeline.reconcile.live_messages import BrokerMessages, TableBatch
from escrowmq.pipeline.reconcile.progress import RunWindow
from escrowmq.pipeline.reconcile.run import Reconciler, ReconcileSettings

from .messages import START, Log


class LogMessages(BrokerMessages):
    """Reads a log written by hand as a broker's queues, each from the offset in `begins` on."""

    def __init__(self, spark: SparkSession, log: Log) -> None:
        self._spark, self._log = spark, log
        self.begins: dict[str, int] = {}
        self.skipped = self.skipped_brokers = frozenset()

    def read_transactions(self, window: RunWindow) -> TableBatch:
        rows, begins = self._log.rows, self.begins
        self._log.rows = [r for r in rows if r["queueOffset"] >= begins.get(r["topic"], 0)]
        frame = self._log.table(self._spark)
        self._log.rows = rows
        ends: dict[str, Any] = {}
        for row in self._log.rows:
            ends.setdefault(row["topic"], {})["broker-a"] = {"0": row["queueOffset"] + 1}
        starts: Any = {topic: {"broker-a": {"0": begins.get(topic, 0)}} for topic in ends}
        return TableBatch(frame, ends, starts)

    def read_topics(self, *_: Any) -> None:
        return None

    def parked_halves(self) -> None:
        return None

    def topic_begin_times(self) -> None:
        return None


def test_a_half_from_before_the_clock_was_set_back_is_known(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = Log()

    def end(half: dict[str, Any], age_s: float) -> None:
        log.final(half, age_s=age_s)
        log.op(half, outcomes="c")
        log.rows[-1]["storeTimestamp"] = START - dt.timedelta(seconds=age_s)

    end(log.half("before", age_s=1_500), 1_490)
    ahead = log.half("ahead", age_s=-300)  # by a clock that was ten minutes ahead
    end(ahead, 299)
    for number in range(3):
        end(log.half(f"after {number}", age_s=200 - number), 195 - number)
    ghost = {
        "physicalOffset": 77,
        "queueOffset": 3,
        "properties": {"UNIQ_KEY": "ghost", "REAL_TOPIC": "paid"},
    }
    log.final({"tags": None, "body": b"", **ghost}, age_s=100)
    now = START + dt.timedelta(minutes=2)
    source = LogMessages(spark, log)
    job = Reconciler(
        spark, source, str(tmp_path), settings=ReconcileSettings(),
        now_ms=lambda: int(now.timestamp() * 1000),
    )  # fmt: skip
    report = job.run(lease=FileLease(tmp_path))
    assert report.classes == {"final-without-half": 1}, "that of the ghost alone"
    assert report.balance.halves == 4
    progress = job.results.progress()
    assert progress.ends[Topic.HALF]["broker-a"]["0"] == ahead["queueOffset"]
    now += dt.timedelta(minutes=10)
    report = job.run(lease=FileLease(tmp_path))
    assert (report.balance.halves, report.balance.committed) == (5, 5)
    assert report.open_classes == {"final-without-half": 1}


def test_an_op_record_of_an_older_copy_counts_when_only_newer_ones_are_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    """RocketMQ stores a half again for each check; a late END of its producer names the first."""
    log = Log()
    first = [log.half("committed", age_s=9_000), log.half("rolled back", age_s=9_000)]
    for key, place in (("committed", "0"), ("rolled back", "1")):
        log.half(key, age_s=900, TRANSACTION_CHECK_TIMES="1", TRAN_PREPARED_QUEUE_OFFSET=place)
    log.final(first[0], age_s=890)
    log.op(*first)
    now, source = START, LogMessages(spark, log)
    job = Reconciler(
        spark, source, str(tmp_path), settings=ReconcileSettings(),
        now_ms=lambda: int(now.timestamp() * 1000),
    )  # fmt: skip
    for _ in range(3):
        report = job.run(lease=FileLease(tmp_path))
        assert (report.classes, report.open_classes) == ({}, {})
        source.begins = {Topic.HALF: len(first)}
        now += dt.timedelta(minutes=10)
