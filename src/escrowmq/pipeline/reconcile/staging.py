"""Allows runs to die at any moment: changes of a table are first written beside it, and a run
counts once its row is in the table of runs."""

from __future__ import annotations

from typing import Final

import msgspec
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from escrowmq.errors import StorageError, UsageError
from escrowmq.pipeline.reconcile.partitioned_table import PartitionedTable
from escrowmq.pipeline.reconcile.progress import RunProgress

_READY: Final = "run bigint"
_SLOTS: Final = 2


class StagedTable:
    """Changes a table completely or not at all: if a run dies while it replaces rows, the next run
    completes the replacement."""

    def __init__(self, spark: SparkSession, root: str, name: str, table: PartitionedTable) -> None:
        self._spark = spark
        self._place = f"{root.rstrip('/')}/state/{name}"
        self._table = table

    def recover(self, run: int) -> None:
        """Complete the changes of a run that died."""
        if self._ready_run() == run:
            self._table.replace(self._staged(run))
            # The run is repeated with the same number, and overwrites its slot. If it dies
            # meanwhile, the half-written slot must not be taken for a complete one.
            self._set_ready_run(0)

    def replace(self, rows: DataFrame, *, run: int) -> DataFrame:
        """Replace all rows of the partitions that these rows belong to; return the rows, as
        stored."""
        rows.write.mode("overwrite").parquet(self._slot(run))
        # From here on some run carries it out, this one or the next.
        self._set_ready_run(run)
        # Not `rows`: they would be computed from the table that is about to be overwritten.
        staged = self._staged(run)
        self._table.replace(staged)
        return staged

    def _slot(self, run: int) -> str:
        return f"{self._place}{run % _SLOTS}"

    def _staged(self, run: int) -> DataFrame:
        return self._spark.read.schema(self._table.schema).parquet(self._slot(run))

    def _ready_run(self) -> int:
        """Return the number of the run whose rows are completely written; 0 for none."""
        try:
            rows = self._spark.read.schema(_READY).parquet(f"{self._place}.ready").collect()
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return 0
        return max((row["run"] for row in rows), default=0)

    def _set_ready_run(self, run: int) -> None:
        row = self._spark.createDataFrame([(run,)], _READY).coalesce(1)
        row.write.mode("overwrite").parquet(f"{self._place}.ready")


def last_progress(runs: PartitionedTable, *, of: str) -> RunProgress:
    """Return where the last recorded run with the same subject ended."""
    last = runs.read().orderBy(F.desc("run")).select("progress").head()
    if last is None:
        return RunProgress()
    text = last["progress"] or ""
    try:
        found = msgspec.json.decode(text, type=RunProgress)
    except msgspec.DecodeError as error:
        raise StorageError(
            f"{runs.path} has {text[:80]!r} as the position to continue from: {error}; "
            "choose another result folder, or the release that wrote it"
        ) from error
    if found.of != of:
        raise UsageError(
            f"{runs.path} has runs over {found.of}, not over {of}; give each its own folder "
            "(--out), or in a catalog its own namespace"
        )
    return found
