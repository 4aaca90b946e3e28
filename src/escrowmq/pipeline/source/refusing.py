"""Raises the errors of a stream's options where users see them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from escrowmq.errors import UsageError


class RefusingReader(DataSourceStreamReader):
    """Raises an error at Spark's first call. If `streamReader` itself raised it, PySpark (4.2,
    python_streaming_source_runner) would fail with an UnboundLocalError of its own, and hide the
    cause at the end of the text."""

    def __init__(self, error: UsageError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:  # noqa: N802 - Spark's name
        """Raise the error; Spark calls this for new queries."""
        raise self._error

    def latestOffset(self, *_: object) -> NoReturn:  # noqa: N802 - Spark's name
        """Raise the error; Spark calls this for queries with a checkpoint."""
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> NoReturn:
        """Raise the error; Spark calls this for queries whose batch is repeated."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Raise the error; Spark never gets this far."""
        raise self._error
