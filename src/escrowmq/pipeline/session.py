"""Spark sessions for commands, and their progress."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from escrowmq.base.extras import require_extra

require_extra("spark", "pyspark", "pyarrow")

from pyspark.sql import SparkSession

from escrowmq.errors import UsageError
from escrowmq.pipeline.formats import parse_format

LOOK_S: Final = 0.3
_LOCAL: Final = {"spark.sql.shuffle.partitions": "8"}
"""Spark settings for local sessions. Spark's default of 200 shuffle partitions is for clusters:
locally it takes most of the time of a small job, and eight are enough for ten million halves."""

_DELTA: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def start_session(
    name: str, *, master: str, settings: Mapping[str, str], kind: str = "parquet"
) -> SparkSession:
    """Return the Spark session of this process, for tables of a format. Without `master`, the
    session is that of spark-submit, or else a local one."""
    form = parse_format(kind)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if master or "PYSPARK_GATEWAY_PORT" not in os.environ:
        master = master or "local[*]"
        builder = builder.master(master)
    is_new = SparkSession.getActiveSession() is None
    given = {
        **(_LOCAL if is_new and master.startswith("local") else {}),
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # A failure is reported in one line; Spark would print a Java trace before it.
        "spark.log.level": "FATAL",
        **(_DELTA if form.name == "delta" else {}),
        **settings,
    }
    for key, value in given.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except Exception as error:
        raise UsageError(
            f"no Spark session with master {master!r}: {error}; Java 17 or newer, a master "
            "that can be reached and jars that can be fetched are needed (Java's messages "
            "are above)"
        ) from error


class ProgressBar:
    """Shows the progress of a session's tasks on standard error; does nothing if that is not a
    terminal."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._bar: Any = None
        self._over = threading.Event()
        self._watcher: threading.Thread | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            try:
                from tqdm import tqdm
            except ImportError:
                return self
            self._bar = tqdm(file=sys.stderr, unit="task", leave=False)
            self._watcher = threading.Thread(target=self._watch, name="bar", daemon=True)
            self._watcher.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._watcher is not None:
            self._watcher.join()
        if self._bar is not None:
            self._bar.close()

    def show_step(self, name: str) -> None:
        """Show the current step."""
        if self._bar is not None:
            self._bar.set_description(name)

    def _watch(self) -> None:
        tracker = self._spark.sparkContext.statusTracker()
        done = 0
        seen: dict[int, tuple[int, int]] = {}
        while not self._over.wait(LOOK_S):
            for stage_id in tracker.getActiveStageIds():
                stage = tracker.getStageInfo(stage_id)
                if stage is not None:
                    seen[stage_id] = (stage.numTasks, stage.numCompletedTasks)
            total = sum(tasks for tasks, _ in seen.values())
            now_done = sum(completed for _, completed in seen.values())
            self._bar.total = total
            self._bar.update(now_done - done)
            done = now_done
