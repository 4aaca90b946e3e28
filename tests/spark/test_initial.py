"""A query begins where it began, whatever is killed before its first commit."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop.process import Process, until
from tests.interop.servers import Server

from .topics import copied, copied_numbers, send_numbers, streamed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_latest_stays_what_it_was_when_the_driver_dies_before_the_first_commit(
    spark: SparkSession, server: Server, topic: str, tmp_path: Path
) -> None:
    send_numbers(server, topic, range(10))
    task = {
        "folder": str(tmp_path),
        "source": {"nameServer": server.nameserver, "subscribe": topic},
        "is_available_now": False,
    }
    command = [sys.executable, "-m", "tests.spark.queries", json.dumps(task)]
    environment = {"PYTHONPATH": str(ROOT)}
    driver = Process(command, folder=tmp_path, name="driver", environment=environment)
    planned = tmp_path / "checkpoint" / "offsets" / "0"
    committed = tmp_path / "checkpoint" / "commits" / "0"
    until("the first batch is planned", planned.exists, within_s=90)
    driver.kill()
    if committed.exists():  # it was quicker than the kill: as if the commit had not come to be
        committed.unlink()
        committed.with_name(".0.crc").unlink(missing_ok=True)
    send_numbers(server, topic, range(10, 25))
    copied(streamed(spark, server, topic), tmp_path)
    assert copied_numbers(tmp_path) == [*range(10, 25)]
