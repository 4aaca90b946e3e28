"""Topics copied into tables that are divided by topic and day. What is there already stays: each
run adds what came since."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from escrowmq.errors import UsageError
from escrowmq.pipeline.reconcile.table import check_format

BY: Final = ("topic", "day")


def export(
    spark: SparkSession, options: Mapping[str, str], place: str, *, kind: str = "parquet"
) -> int:
    """Bring the table in a folder up to date with topics; how many rows were added. `options` are
    the source's. How far it is stands in `_checkpoint` beside the table, and a batch that is run
    again after a crash is written once."""
    check_format(kind)
    if kind == "iceberg":
        raise UsageError("export writes parquet or delta; choose one of them")
    root = place.rstrip("/")
    frame = spark.readStream.format("escrowmq").options(**_from_earliest(options)).load()
    writer: Any = _by_day(frame).writeStream.format(kind).partitionBy(*BY)
    query = (
        writer.option("checkpointLocation", f"{root}/_checkpoint")
        .option("path", f"{root}/messages")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def export_range(
    spark: SparkSession, options: Mapping[str, str], place: str, *, kind: str = "parquet"
) -> None:
    """Write a range of topics as a table of its own, whole."""
    check_format(kind)
    if kind == "iceberg":
        raise UsageError("export writes parquet or delta; choose one of them")
    frame = spark.read.format("escrowmq").options(**options).load()
    writer = _by_day(frame).write.format(kind).partitionBy(*BY).mode("overwrite")
    writer.save(f"{place.rstrip('/')}/messages")


def _from_earliest(options: Mapping[str, str]) -> dict[str, str]:
    found = dict(options)
    if not any(name.startswith("starting") for name in found):
        found["startingOffsets"] = "earliest"
    return found


def _by_day(frame: DataFrame) -> DataFrame:
    return frame.withColumn("day", F.to_date("storeTimestamp"))
