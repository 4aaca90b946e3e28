"""Result tables: Parquet, Delta or Iceberg. A write replaces the partitions of its rows, and no
others, so repeating it changes nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from escrowmq.errors import UsageError
from escrowmq.pipeline.formats import TableFormat, explain_jar_errors, parse_format

NOT_THERE: Final = (
    "PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA", "DELTA_MISSING_DELTA_TABLE",
    "DELTA_PATH_DOES_NOT_EXIST", "DELTA_SCHEMA_NOT_SET", "TABLE_OR_VIEW_NOT_FOUND",
)  # fmt: skip
"""Beginnings of the conditions of Spark's errors about a table that does not exist yet."""


class PartitionedTable:
    """A table in a result folder. `schema` is that of its rows, in SQL, with the partition columns
    at the end."""

    def __init__(
        self,
        spark: SparkSession,
        root: str,
        name: str,
        *,
        schema: str,
        by: Sequence[str],
        kind: str = "parquet",
    ) -> None:
        self._spark = spark
        self._root = root.rstrip("/")
        self._name = name
        self.schema = schema
        self._by = tuple(by)
        self._format = parse_format(kind)

    @property
    def path(self) -> str:
        """The table's path, or its name in a catalog."""
        if self._format.namespace:
            return f"{self._format.namespace}.{self._name}"
        return f"{self._root}/{self._name}"

    def read(self) -> DataFrame:
        """Read all rows; none before the first write."""
        with explain_jar_errors(self._format):
            try:
                return self._read()
            except AnalysisException as error:
                if (error.getCondition() or "").startswith(NOT_THERE):
                    return self._spark.createDataFrame([], self.schema)
                raise

    def replace(self, rows: DataFrame) -> None:
        """Replace all rows of the partitions that these rows belong to."""
        rows = rows.select(*self._columns())
        with explain_jar_errors(self._format):
            if self._format.name == "iceberg":
                self._replace_iceberg(rows)
                return
            writer = rows.write.mode("overwrite").partitionBy(*self._by)
            writer = writer.option("partitionOverwriteMode", "dynamic")
            writer.format(self._format.name).save(self.path)

    def _read(self) -> DataFrame:
        if self._format.name == "iceberg":
            return self._spark.read.table(self._identifier())
        reader: Any = self._spark.read
        if self._format.name == "parquet":
            return reader.schema(self.schema).parquet(self.path)
        return reader.format(self._format.name).load(self.path)

    def _columns(self) -> list[str]:
        return [field.split(maxsplit=1)[0] for field in _split_schema(self.schema)]

    def _identifier(self) -> str:
        return f"{iceberg_namespace(self._spark, self._root, self._format)}.{self._name}"

    def _replace_iceberg(self, rows: DataFrame) -> None:
        name = self._identifier()
        if self._spark.catalog.tableExists(name):
            rows.writeTo(name).overwritePartitions()
            return
        create_namespace(self._spark, self._format)
        first, *rest = self._by
        rows.writeTo(name).using("iceberg").partitionedBy(first, *rest).create()


def day_of(time: str) -> Column:
    """The day of a time in UTC, whatever the session's time zone is. A day's partition is replaced
    as a whole, so each run must compute the same days."""
    return F.date_from_unix_date(F.floor(F.unix_seconds(time) / 86_400).cast("int"))


def iceberg_namespace(spark: SparkSession, root: str, form: TableFormat) -> str:
    """Return the namespace of Iceberg's tables of a result folder: in a catalog of the session, or
    in one for the folder itself, because Iceberg reaches folders only through catalogs."""
    if form.namespace:
        catalog = form.namespace.partition(".")[0]
        setting = f"spark.sql.catalog.{catalog}"
        if spark.conf.get(setting, "") == "":
            raise UsageError(
                f"this session has no catalog {catalog!r}; define it with --conf {setting}="
                f"org.apache.iceberg.spark.SparkCatalog, --conf {setting}.type=rest (or hive, "
                "hadoop, glue) and what that type needs"
            )
        return form.namespace
    digest = hashlib.sha1(root.rstrip("/").encode(), usedforsecurity=False).hexdigest()
    catalog = f"escrowmq_{digest[:8]}"
    settings = {
        "": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop", ".warehouse": root,
        # What other processes have written is seen at once.
        ".cache-enabled": "false",
    }  # fmt: skip
    for name, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.{catalog}{name}", value)
    return catalog


def create_namespace(spark: SparkSession, form: TableFormat) -> None:
    """Create the namespace named by a format, if it is missing."""
    if form.namespace:
        spark.sql(f"create namespace if not exists {form.namespace}")


def _split_schema(schema: str) -> list[str]:
    """Split a schema at its outer commas."""
    found, depth = [""], 0
    for letter in schema:
        depth += (letter == "<") - (letter == ">")
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return [field.strip() for field in found]
