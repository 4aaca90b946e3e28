"""The business's own rows: which messages the user's application has processed, and when."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, Final, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from escrowmq.errors import UsageError

ROWS: Final = "messageId string, topic string, at timestamp"
PAGE_COUNT: Final = 50_000
_KINDS: Final = ("parquet", "csv", "json", "orc", "delta")
_ARROW: Final = pa.schema(
    [
        ("messageId", pa.string()),
        ("topic", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)

BusinessRow = tuple[str, str | None, dt.datetime]
"""A processed message: its id, its topic if known, and when the business wrote it."""


class BusinessRows(Protocol):
    """Provides the business's rows as a table."""

    def __call__(self, spark: SparkSession, since: dt.datetime) -> DataFrame:
        """Return rows (`ROWS`) that were written at a time or later; a few older ones are
        harmless."""


def from_files(
    path: str, *, message_id: str = "messageId", at: str = "at", topic: str = ""
) -> BusinessRows:
    """Read rows from files that Spark reads: `kind:path`, or a folder of Parquet. The other
    arguments are names of columns."""
    kind, mark, place = path.partition(":")
    if not mark or kind not in _KINDS:
        kind, place = "parquet", path

    def read(spark: SparkSession, since: dt.datetime) -> DataFrame:
        reader = spark.read.format(kind)
        frame = (reader.option("header", "true") if kind == "csv" else reader).load(place)
        missing = [name for name in (message_id, at, topic) if name and name not in frame.columns]
        if missing:
            raise UsageError(
                f"{path} has no column {missing[0]!r}; it has {', '.join(frame.columns)}. "
                "Name the columns with the message's id and the time"
            )
        rows = frame.select(
            F.col(message_id).cast("string").alias("messageId"),
            (F.col(topic) if topic else F.lit(None)).cast("string").alias("topic"),
            F.col(at).cast("timestamp").alias("at"),
        )
        return rows.where(F.col("at") >= F.lit(since))

    return read


def from_database(connect: Callable[[], Any], query: str) -> BusinessRows:
    """Read rows from a database, through the driver's own connection (DB-API 2.0; psycopg for
    PostgreSQL). `query` has one parameter, the start time; it selects a message's id, its topic or
    null, and a time with its zone. The result is fetched page by page, never as a whole."""

    def pages(since: dt.datetime) -> Iterator[Sequence[Sequence[Any]]]:
        with closing(connect()) as connection, closing(_cursor(connection)) as cursor:
            cursor.execute(query, (since,))
            while page := cursor.fetchmany(PAGE_COUNT):
                yield page

    def read(spark: SparkSession, since: dt.datetime) -> DataFrame:
        return _rows_table(spark, pages(since), query)

    return read


def from_rows(rows: Callable[[dt.datetime], Iterable[BusinessRow]]) -> BusinessRows:
    """Get rows from a function that is called with the start time."""

    def read(spark: SparkSession, since: dt.datetime) -> DataFrame:
        return _rows_table(spark, _chunks(rows(since)), "the function")

    return read


def _cursor(connection: Any) -> Any:  # noqa: ANN401 - DB-API has no types
    # psycopg's unnamed cursors hold the whole result on the client.
    if type(connection).__module__.partition(".")[0] == "psycopg":
        return connection.cursor(name="escrowmq_rows")
    return connection.cursor()


def _chunks(rows: Iterable[BusinessRow]) -> Iterator[list[BusinessRow]]:
    chunk: list[BusinessRow] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == PAGE_COUNT:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _rows_table(
    spark: SparkSession, pages: Iterable[Sequence[Sequence[Any]]], where: str
) -> DataFrame:
    """Make a table of rows, as Arrow columns page by page; that takes a tenth of the memory of
    tuples."""
    batches = []
    for page in pages:
        if len(page[0]) != len(_ARROW):
            raise UsageError(
                f"{where[:80]!r} gives rows of {len(page[0])} columns; a message's id, its topic "
                "(or null) and a time are expected"
            )
        try:
            columns = [
                pa.array(cells, type=field.type)
                for cells, field in zip(zip(*page, strict=True), _ARROW, strict=True)
            ]
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise UsageError(
                f"{where[:80]!r} gives rows like {page[0]!r}: {error}; a message's id as text, its "
                "topic (or null) and a time are expected, so cast the columns"
            ) from error
        batches.append(pa.RecordBatch.from_arrays(columns, schema=_ARROW))
    if not batches:
        return spark.createDataFrame([], ROWS)
    return spark.createDataFrame(pa.Table.from_batches(batches))
