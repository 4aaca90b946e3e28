"""The same runs with tables in Delta, in a process of their own that has its jars."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop import jars

from . import tablejars
from .injected import BROKER, GROUP, Injected

pytest.importorskip("pyspark")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(jars.missing_tools("java", "mvn")), reason="needs Java and Maven"),
]
TIMEOUT_S = 280


def command(*words: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "escrowmq", "pipeline", *map(str, words)],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_delta_tables_are_brought_up_to_date(tmp_path: Path) -> None:
    injected = Injected(tmp_path / "store", count=500)
    common = [
        "--store", f"{BROKER}={tmp_path / 'store'}", "--out", tmp_path / "out", "--format", "delta",
        "--conf", f"spark.jars={tablejars.delta()}", "--conf", "spark.sql.shuffle.partitions=2",
        "--json",
    ]  # fmt: skip
    for _ in range(2):
        report = json.loads(command("reconcile", *common, "--group", GROUP))
        assert report["balance"]["halves"] > 0
    log = tmp_path / "out" / "differences" / "_delta_log"
    assert len(list(log.glob("*.json"))) == 2
    assert (tmp_path / "out" / "runs" / "_delta_log").is_dir()
    assert report["run"] == 2
    assert report["classes"]["committed without final"] == len(
        [key for kind, key in injected.expected if kind == "committed without final"]
    )
