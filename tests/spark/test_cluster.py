"""A Spark cluster: a master and two workers as processes on loopback."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop.process import Process, until
from tests.interop.servers import Server

from .faults import Run, differences
from .topics import loaded, send_numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.long
START_S = 60.0


class Cluster:
    """Spark's own standalone cluster."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.master = self._start("master.Master", "master")
        found = until("the master stands", self._address, within_s=START_S)
        self.url = found
        self.workers = [self._worker(number) for number in range(2)]

    def kill(self) -> None:
        """End all of it."""
        for each in [*self.workers, self.master]:
            each.kill()

    def _worker(self, number: int) -> Process:
        name = f"worker{number}"
        more = ["--cores", "1", "--memory", "1g", "-d", str(self._folder / name), self.url]
        worker = self._start("worker.Worker", name, *more)
        until(f"{name} is registered", lambda: "Successfully registered" in _log(worker))
        return worker

    def _start(self, kind: str, name: str, *more: str) -> Process:
        import pyspark

        home = Path(pyspark.__file__).parent
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}"]
        command += ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0", *more]
        environment = {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
        }
        return Process(command, folder=self._folder, name=name, environment=environment)

    def _address(self) -> str | None:
        found = re.search(r"Starting Spark master at (spark://\S+)", _log(self.master))
        return found[1] if found else None


def _log(process: Process) -> str:
    return process.errors.read_text(errors="replace")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    started = Cluster(tmp_path / "cluster")
    yield started
    started.kill()


def test_a_worker_is_killed_in_mid_job_and_the_result_is_that_of_a_local_run(
    spark: SparkSession, server: Server, cluster: Cluster, tmp_path: Path
) -> None:
    settings = {"spark.executor.memory": "512m", "spark.executor.cores": "1"}
    run = Run(server, tmp_path, master=cluster.url, per_batch=100, settings=settings)
    send_numbers(server, run.source, range(2_000))
    query = run.start()
    commits = tmp_path / "checkpoint" / "commits"
    until("it is in mid-job", (commits / "1").exists, within_s=120)
    cluster.workers[0].kill()
    query.wait_line("DONE", within_s=240)
    query.kill()
    assert differences(run) == []
    wanted, found = (summed(loaded(spark, server, topic)) for topic in (run.source, run.sink))
    assert found == wanted


def summed(frame: DataFrame) -> list[tuple[object, ...]]:
    """What a job on the local master makes of a topic."""
    numbers = frame.selectExpr("tags", "cast(cast(body as string) as bigint) as n")
    rows = numbers.groupBy("tags").agg({"n": "sum", "*": "count"}).orderBy("tags").collect()
    return [tuple(row) for row in rows]
