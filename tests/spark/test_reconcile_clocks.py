"""A broker's clock that was ahead, and was set right: store times go back in its queues."""

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
    """Reads a log written by hand as a broker's queues: all that is stored before the run."""

    def __init__(self, spark: SparkSession, log: Log) -> None:
        self._spark, self._log = spark, log
        self.skipped = self.skipped_brokers = frozenset()

    def read_transactions(self, window: RunWindow) -> TableBatch:
        frame = self._log.table(self._spark)
        ends: dict[str, Any] = {}
        for row in self._log.rows:
            ends.setdefault(row["topic"], {})["broker-a"] = {"0": row["queueOffset"] + 1}
        begins = {topic: {"broker-a": {"0": 0}} for topic in ends}
        return TableBatch(frame, ends, begins)

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
