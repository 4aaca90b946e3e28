"""The tables that runs write: the differences, and one row for each run."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Final

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from escrowmq.pipeline.reconcile.differences import DifferenceClass
from escrowmq.pipeline.reconcile.partitioned_table import PartitionedTable, day_of
from escrowmq.pipeline.reconcile.progress import RunProgress, to_spark_time
from escrowmq.pipeline.reconcile.staging import StagedTable, last_progress
from escrowmq.pipeline.reconcile.sum_check import Balance

DIFFERENCES: Final = (
    "key string, class string, broker string, topic string, messageId string, at timestamp, "
    "evidence map<string,string>, repair string, firstSeen timestamp, lastSeen timestamp, "
    "goneAt timestamp, firstRun bigint, lastRun bigint, day date"
)
RUNS: Final = (
    "startedAt timestamp, sinceMs bigint, untilMs bigint, halves bigint, committed bigint, "
    "rolledBack bigint, pending bigint, parked bigint, expired bigint, "
    "classes map<string,bigint>, progress string, day date, run bigint"
)

RECHECKED_CLASSES: Final = (
    DifferenceClass.PENDING,
    DifferenceClass.OVERDUE,
    DifferenceClass.PARKED,
    DifferenceClass.NO_FINAL,
    DifferenceClass.ANNOUNCED_ROLLED_BACK,
    DifferenceClass.NOT_CONSUMED,
    DifferenceClass.MESSAGE_WITHOUT_ROW,
)
"""Classes of differences that may disappear later. Every run examines the open ones again."""


class RunScope(msgspec.Struct, frozen=True, kw_only=True):
    """The scope of a run besides the halves. The run does not judge differences outside of it."""

    groups: tuple[str, ...] = ()
    has_rows: bool = False
    has_commits: bool = False
    """Whether announced commits were compared with everything that consumers have consumed."""

    skipped: tuple[str, ...] = ()
    """Topics and brokers that were left out."""

    skipped_brokers: tuple[str, ...] = ()


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a run."""

    started_ms: int
    since_ms: int
    balance: Balance
    classes: Mapping[str, int]
    progress: RunProgress


class ResultTables:
    """The tables in a result folder. Any process may read `differences` and `runs`."""

    def __init__(self, spark: SparkSession, root: str, *, kind: str = "parquet") -> None:
        self._spark = spark
        self.differences = _DifferencesTable(
            spark, root, "differences", schema=DIFFERENCES, by=("day",), kind=kind
        )
        self.runs = PartitionedTable(spark, root, "runs", schema=RUNS, by=("day", "run"), kind=kind)
        self._staging = StagedTable(spark, root, "differences", self.differences)

    def progress(self, of: str = "halves") -> RunProgress:
        """Return where the last run ended. Complete the unfinished writes of a run that died
        first."""
        found = last_progress(self.runs, of=of)
        self._staging.recover(found.run + 1)
        return found

    def merge(
        self, found: DataFrame, examined: RunScope, *, now: dt.datetime, run: int
    ) -> DataFrame:
        """Record the differences that a run has found: new ones, those that remain, and those that
        disappeared. Return the open differences that may disappear later."""
        merged = _merge(self.differences.read(), found, examined, now=now, run=run)
        rows = self._staging.replace(merged, run=run)
        return rows.where(F.col("goneAt").isNull() & _is_rechecked())

    def open_rechecked(self) -> DataFrame:
        """Return the differences that were open when the last run ended and may disappear later."""
        return self.differences.read().where(F.col("goneAt").isNull() & _is_rechecked())

    def messages_with_open(self, kind: DifferenceClass) -> DataFrame:
        """Return the messages (`broker`, `messageId`) that had a difference when the last run
        ended."""
        rows = self.differences.read().where(F.col("goneAt").isNull() & (F.col("class") == kind))
        return rows.select("broker", "messageId")

    def open_classes(self) -> dict[str, int]:
        """Return the number of unrepaired differences of each class. Those that cannot disappear,
        such as two finals, stay open."""
        rows = self.differences.read().where(F.col("goneAt").isNull())
        return {row["class"]: row["count"] for row in rows.groupBy("class").count().collect()}

    def commit(self, row: RunRow) -> None:
        """Add the row of a run, which makes its range count as covered."""
        found, balance = to_spark_time(row.started_ms), row.balance
        cells = (
            found, row.since_ms, row.progress.until_ms, balance.halves, balance.committed,
            balance.rolled_back, balance.pending, balance.parked, balance.expired,
            dict(row.classes), msgspec.json.encode(row.progress).decode(), found.date(),
            row.progress.run,
        )  # fmt: skip
        self.runs.replace(self._spark.createDataFrame([cells], RUNS).coalesce(1))


class _DifferencesTable(PartitionedTable):
    """The table of differences. It renames classes that older releases wrote with blanks."""

    def read(self) -> DataFrame:
        """Read all rows."""
        rows = super().read()
        return rows.withColumn("class", F.replace("class", F.lit(" "), F.lit("-")))


def _merge(
    known: DataFrame, found: DataFrame, examined: RunScope, *, now: dt.datetime, run: int
) -> DataFrame:
    """Return all rows of the days on which something changes."""
    new = with_keys(found).withColumn("day", day_of("at"))
    is_open = F.col("goneAt").isNull() & _is_rechecked()
    # A difference that is found again may have another day than the one recorded.
    again = known.join(new.select("key"), "key", "left_semi")
    changed = new.select("day").union(known.where(is_open).select("day"))
    days = F.broadcast(changed.union(again.select("day")).distinct())
    old = known.join(days, "day", "left_semi").withColumn("isOld", F.lit(True))
    both = old.alias("old").join(new.withColumn("isFound", F.lit(True)).alias("new"), "key", "full")
    is_found = F.col("new.isFound").isNotNull()
    is_gone = F.col("old.goneAt").isNull() & _was_examined("old", examined)
    at = F.lit(now)
    either = ("class", "broker", "topic", "messageId", "evidence", "repair")
    return both.select(
        "key",
        *[F.coalesce(f"new.{name}", f"old.{name}").alias(name) for name in either],
        # The recorded day of a difference stays, so that only one partition is rewritten.
        *[F.coalesce(f"old.{name}", f"new.{name}").alias(name) for name in ("at", "day")],
        F.coalesce("old.firstSeen", at).alias("firstSeen"),
        F.when(is_found, at).otherwise(F.col("old.lastSeen")).alias("lastSeen"),
        F.when(is_found, None).when(is_gone, at).otherwise(F.col("old.goneAt")).alias("goneAt"),
        F.coalesce("old.firstRun", F.lit(run)).alias("firstRun"),
        F.when(is_found, run).otherwise(F.col("old.lastRun")).cast("bigint").alias("lastRun"),
    )


def with_keys(found: DataFrame) -> DataFrame:
    """Add `key`, which identifies a difference across runs, and drop duplicate keys."""
    group = F.coalesce(F.col("evidence").getItem("consumerGroup"), F.lit(""))
    parts = [F.coalesce(name, F.lit("")) for name in ("class", "broker", "topic", "messageId")]
    key = F.sha1(F.concat_ws("\x01", *parts, group))
    return found.withColumn("key", key).dropDuplicates(["key"])


def _is_rechecked(side: str = "") -> Column:
    return F.col(f"{side}class").isin(*RECHECKED_CLASSES)


def _was_examined(side: str, examined: RunScope) -> Column:
    """Whether the run would have found this difference, if it still existed."""
    kind = F.col(f"{side}.class")
    group = F.col(f"{side}.evidence").getItem("consumerGroup")
    is_skipped = F.col(f"{side}.topic").isin(list(examined.skipped)) | F.col(f"{side}.broker").isin(
        list(examined.skipped_brokers)
    )
    is_skipped = F.coalesce(is_skipped, F.lit(False))
    of_group = F.when(group.isNull(), F.lit(examined.has_commits)).otherwise(
        group.isin(list(examined.groups))
    )
    return (
        F.when(is_skipped, F.lit(False))
        .when(kind == DifferenceClass.NOT_CONSUMED, of_group)
        .when(kind == DifferenceClass.MESSAGE_WITHOUT_ROW, F.lit(examined.has_rows))
        .otherwise(_is_rechecked(f"{side}."))
    )
