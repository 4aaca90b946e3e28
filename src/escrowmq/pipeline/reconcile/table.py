"""Tables of results: Parquet, Delta or Iceberg. A write replaces the partitions that it has rows
of, and touches no other, so that writing the same again changes nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import pyspark
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from escrowmq.errors import UsageError

FORMATS: Final = ("parquet", "delta", "iceberg")
_NOT_THERE: Final = (
    "PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA", "DELTA_MISSING_DELTA_TABLE",
    "DELTA_PATH_DOES_NOT_EXIST", "DELTA_SCHEMA_NOT_SET", "TABLE_OR_VIEW_NOT_FOUND",
)  # fmt: skip
_ICEBERG_SPARK: Final = (4, 1)
"""The newest release of PySpark that Iceberg's runtime (1.11) runs with."""


def check_format(name: str) -> None:
    """UsageError when tables of a format cannot be written here."""
    if name not in FORMATS:
        raise UsageError(f"format {name!r}; one of {', '.join(FORMATS)} is expected")
    release = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if name == "iceberg" and release > _ICEBERG_SPARK:
        raise UsageError(
            f"Iceberg's runtime does not run with PySpark {pyspark.__version__}; install PySpark "
            "4.1 for it, or choose --format delta or parquet"
        )


class Table:
    """A table in a folder of a result folder. `schema` is that of its rows, in SQL, with the
    columns that divide it at the end."""

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
        check_format(kind)
        self._spark = spark
        self._root = root.rstrip("/")
        self._name = name
        self.schema = schema
        self._by = tuple(by)
        self._kind = kind

    @property
    def path(self) -> str:
        """Where it lies."""
        return f"{self._root}/{self._name}"

    def read(self) -> DataFrame:
        """All rows; none before the first write."""
        try:
            if self._kind == "iceberg":
                return self._spark.read.table(self._identifier())
            reader: Any = self._spark.read
            if self._kind == "parquet":
                return reader.schema(self.schema).parquet(self.path)
            return reader.format(self._kind).load(self.path)
        except AnalysisException as error:
            if (error.getCondition() or "").startswith(_NOT_THERE):
                return self._spark.createDataFrame([], self.schema)
            raise

    def replace(self, rows: DataFrame) -> None:
        """Put these rows in place of all that their partitions have."""
        rows = rows.select(*self._columns())
        try:
            if self._kind == "iceberg":
                self._replace_iceberg(rows)
                return
            writer = rows.write.mode("overwrite").partitionBy(*self._by)
            writer = writer.option("partitionOverwriteMode", "dynamic")
            writer.format(self._kind).save(self.path)
        except PySparkException as error:
            if self._kind in str(error) and error.getCondition() == "DATA_SOURCE_NOT_FOUND":
                raise UsageError(
                    f"Spark has no {self._kind} jars; start it with them (docs/pipeline.md), or "
                    "choose --format parquet"
                ) from error
            raise

    def _columns(self) -> list[str]:
        return [field.split(maxsplit=1)[0] for field in _fields(self.schema)]

    def _identifier(self) -> str:
        """Its name in a catalog of its own, as Iceberg knows folders through catalogs alone."""
        catalog = (
            f"escrowmq_{hashlib.sha1(self._root.encode(), usedforsecurity=False).hexdigest()[:8]}"
        )
        conf = self._spark.conf
        conf.set(f"spark.sql.catalog.{catalog}", "org.apache.iceberg.spark.SparkCatalog")
        conf.set(f"spark.sql.catalog.{catalog}.type", "hadoop")
        conf.set(f"spark.sql.catalog.{catalog}.warehouse", self._root)
        return f"{catalog}.{self._name}"

    def _replace_iceberg(self, rows: DataFrame) -> None:
        name = self._identifier()
        if self._spark.catalog.tableExists(name):
            rows.writeTo(name).overwritePartitions()
            return
        first, *rest = self._by
        rows.writeTo(name).using("iceberg").partitionedBy(first, *rest).create()


def _fields(schema: str) -> list[str]:
    """The parts of a schema between its outer commas."""
    found, depth = [""], 0
    for letter in schema:
        depth += (letter == "<") - (letter == ">")
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return [field.strip() for field in found]
