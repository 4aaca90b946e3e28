"""What is wrong with a stream, said where users see it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from escrowmq.errors import UsageError


class RefusingReader(DataSourceStreamReader):
    """Raises an error with the first question. PySpark (4.2, python_streaming_source_runner)
    meets one that `streamReader` raises with an UnboundLocalError of its own, which is all that
    is seen at the end of the text."""

    def __init__(self, error: UsageError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:  # noqa: N802 - Spark's name
        """For new queries."""
        raise self._error

    def latestOffset(self, *_: object) -> NoReturn:  # noqa: N802 - Spark's name
        """For those with a checkpoint."""
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> NoReturn:
        """For those whose batch is run again."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Nothing comes so far."""
        raise self._error
