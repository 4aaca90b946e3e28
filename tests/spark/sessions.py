"""Spark sessions as these tests need them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

QUICK: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""For tests, which have little data and many plans: what takes long there is to compile and to
plan, not to run. Benchmarks leave it out."""


def build_session(
    master: str, folder: Path, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session whose driver is on loopback, without a user interface."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
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
        "spark.driver.memory": "1g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.log.level": "ERROR",
    }
