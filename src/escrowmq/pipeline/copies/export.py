"""Copies topics into tables partitioned by topic and day. Existing rows stay: each run adds new
messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from escrowmq.errors import UsageError
from escrowmq.pipeline.formats import TableFormat, explain_jar_errors, parse_format
from escrowmq.pipeline.reconcile.partitioned_table import (
    NOT_THERE,
    create_namespace,
    day_of,
    iceberg_namespace,
)
from escrowmq.pipeline.source.stream import HAS_LIMITS

BY: Final = ("topic", "day")
TABLE: Final = "messages"
LOOK_S: Final = 1
_QUERY_ID: Final = "spark.sql.streaming.queryId"
_AS_READ: Final = {"fanout-enabled": "true", "distribution-mode": "none"}
"""Options that let each task write the rows that it has read, one file per topic and day. Without
them, Iceberg collects all rows of a topic's day in one task."""


def export(
    spark: SparkSession, options: Mapping[str, str], place: str, *, kind: str = "parquet"
) -> int:
    """Append a topic's new messages to the table in a folder; return the number of rows. `options`
    are those of the source. The progress is in `_checkpoint` in the folder, and a batch that is
    repeated after a crash is written once."""
    form = parse_format(kind)
    root = place.rstrip("/")
    _refuse_range(spark, root, form)
    count = _append_available(spark, options, root, form)
    if not HAS_LIMITS:
        # A query of PySpark 4.1 does only the batch that a crash has left, so run it again.
        count += _append_available(spark, options, root, form)
    return count


def _refuse_range(spark: SparkSession, root: str, form: TableFormat) -> None:
    """Raise UsageError if the table has rows that no streaming `export` has written: it would add
    them again."""
    if not _has_checkpoint(spark, root) and _has_rows(spark, root, form):
        raise UsageError(
            f"the table {TABLE} in {form.namespace or root} is a range, and an export without an "
            "end would add its rows again; name another folder, or remove it"
        )


def _append_available(
    spark: SparkSession, options: Mapping[str, str], root: str, form: TableFormat
) -> int:
    """Run a query until it has written all available messages; return the number of rows."""
    frame = spark.readStream.format("escrowmq").options(**_from_earliest(options)).load()
    writer: Any = _with_day(frame).writeStream.format(form.name).partitionBy(*BY)
    writer = writer.option("checkpointLocation", f"{root}/_checkpoint").trigger(availableNow=True)
    with explain_jar_errors(form):
        if form.name == "iceberg":
            name = f"{iceberg_namespace(spark, root, form)}.{TABLE}"
            create_namespace(spark, form)
            query = writer.options(**_AS_READ).toTable(name)
        else:
            query = writer.option("path", f"{root}/{TABLE}").start()
        return _read_count(query)


def _read_count(query: Any) -> int:  # noqa: ANN401 - of classic Spark, or of Spark Connect
    """Return the number of rows that an ended query has read. Spark keeps only its last hundred
    reports, and makes at most about ten in a second."""
    counts: dict[int, int] = {}
    is_over = False
    while not is_over:
        is_over = query.awaitTermination(LOOK_S)
        counts |= {report["batchId"]: report["numInputRows"] for report in query.recentProgress}
    return sum(counts.values())


def export_range(
    spark: SparkSession, options: Mapping[str, str], place: str, *, kind: str = "parquet"
) -> None:
    """Write a range of topics as a complete table of its own. A table maintained by `export` is
    never replaced."""
    form = parse_format(kind)
    root = place.rstrip("/")
    frame = _with_day(spark.read.format("escrowmq").options(**options).load())
    with explain_jar_errors(form):
        if _is_export_target(spark, root, form):
            raise UsageError(
                f"the table {TABLE} in {form.namespace or root} is maintained by an export "
                "without an end, and a range would replace it; name another folder"
            )
        if form.name == "iceberg":
            create_namespace(spark, form)
            table = frame.writeTo(f"{iceberg_namespace(spark, root, form)}.{TABLE}").using(
                "iceberg"
            )
            table.partitionedBy(*BY).options(**_AS_READ).createOrReplace()
        else:
            writer = frame.write.format(form.name).partitionBy(*BY).mode("overwrite")
            writer.save(f"{root}/{TABLE}")


def exported(spark: SparkSession, place: str, *, kind: str = "parquet") -> DataFrame:
    """The table in a folder. For Parquet, Spark infers the type of a topic's name, and reads `007`
    as a number; here it is text.

    >>> exported(spark, "/lake").where("topic = '007'").count()
    3
    """
    form = parse_format(kind)
    root = place.rstrip("/")
    with explain_jar_errors(form):
        if form.name == "iceberg":
            return spark.read.table(f"{iceberg_namespace(spark, root, form)}.{TABLE}")
        frame = spark.read.format(form.name).load(f"{root}/{TABLE}")
        if form.name != "parquet":
            return frame
        fields = [
            StructField("topic", StringType()) if field.name == "topic" else field
            for field in frame.schema.fields
        ]
        return spark.read.schema(StructType(fields)).parquet(f"{root}/{TABLE}")


def _is_export_target(spark: SparkSession, root: str, form: TableFormat) -> bool:
    """Whether a streaming `export` writes to the table. A catalog shows its queries for each table;
    elsewhere, the folder `root` has a query's checkpoint."""
    try:
        if form.namespace:
            name = f"{iceberg_namespace(spark, root, form)}.{TABLE}.snapshots"
            snapshots = spark.read.table(name).where(
                F.col("summary").getItem(_QUERY_ID).isNotNull()
            )
            return not snapshots.isEmpty()
    except AnalysisException as error:
        if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
            raise
        return False
    return _has_checkpoint(spark, root)


def _has_checkpoint(spark: SparkSession, root: str) -> bool:
    try:
        return not spark.read.text(f"{root}/_checkpoint/metadata").isEmpty()
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return False


def _has_rows(spark: SparkSession, root: str, form: TableFormat) -> bool:
    try:
        return not exported(spark, root, kind=_kind_of(form)).isEmpty()
    except AnalysisException as error:
        if not (error.getCondition() or "").startswith(NOT_THERE):
            raise
        return False


def _kind_of(form: TableFormat) -> str:
    return f"{form.name}:{form.namespace}" if form.namespace else form.name


def _from_earliest(options: Mapping[str, str]) -> dict[str, str]:
    found = dict(options)
    if not any(name.lower().startswith("starting") for name in found):  # names have no case
        found["startingOffsets"] = "earliest"
    return found


def _with_day(frame: DataFrame) -> DataFrame:
    return frame.withColumn("day", day_of("storeTimestamp"))
