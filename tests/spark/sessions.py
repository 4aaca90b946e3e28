"""Spark sessions as these tests need them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

QUICK: Final = {
    # With the first compiler alone the JVM keeps 48 MB for code, and a session of these tests
    # compiles more than that: it would go on throwing out and compiling anew.
    "spark.driver.extraJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
    ),
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Each column would note the line of Python that made it, with five calls into the JVM.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Spark's checks of its own optimizer, and a description of each query for its user interface.
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.ui.explainMode": "simple",
    # Files of a few rows are read by one task instead of two.
    "spark.sql.files.minPartitionNum": "1",
}
"""For tests, which have little data and many plans: what takes long there is to compile and to
plan, not to run. Benchmarks leave it out."""

QUICK_WORKERS: Final = {
    "PYSPARK_PYTHON": str(Path(__file__).with_name("worker_python")),
    "WORKER_PYTHON": sys.executable,
}
"""Environment of a driver whose workers start sooner. Benchmarks leave it out too."""


def build_quick_session(
    master: str, folder: Path, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session for tests; `settings` override those that make it quick."""
    os.environ.update(QUICK_WORKERS)
    return build_session(master, folder, QUICK | dict(settings or {}))


def build_session(
    master: str, folder: Path, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session whose driver is on loopback, without a user interface."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master(master).appName("escrowmq tests")
    for name, value in (quiet(folder) | dict(settings or {})).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def quiet(folder: Path) -> dict[str, str]:
    """The settings of such a session, which has its files in a folder."""
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.log.level": "ERROR",
    }
