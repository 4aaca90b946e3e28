"""Two runs over one result folder at once: the second is refused, with every kind of lease."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from escrowmq.cli.main import main
from tests.compensation.services import RedisServer, missing
from tests.interop.process import Process, until

from .injected import Injected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")
redis = pytest.importorskip("redis")
pytestmark = pytest.mark.skipif(bool(missing()), reason=f"not on this machine: {missing()}")

ROOT: Final = Path(__file__).parents[2]
START_S: Final = 180.0


@pytest.fixture
def lease(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[str]]:
    """The options of a lease, of either kind."""
    if request.param == "file":
        yield []
        return
    server = RedisServer(tmp_path / "redis")
    yield ["--lease", server.url]
    server.kill()


@pytest.fixture
def words(tmp_path: Path, lease: list[str]) -> list[str]:
    """A command over a small store."""
    injected = Injected(tmp_path / "store", count=30, segment_size=1 << 20)
    store = f"broker-a={injected.folder}"
    return ["pipeline", "reconcile", "--store", store, "--out", str(tmp_path / "out"), *lease]


def is_held(words: list[str]) -> bool:
    """Whether somebody has the lease."""
    if "--lease" in words:
        with redis.Redis.from_url(words[-1]) as client:
            return bool(client.keys("*"))
    return (Path(words[words.index("--out") + 1]) / "lease").exists()


def stopped_within(words: list[str], folder: Path) -> Process:
    """A process that runs the command, and stands still since it has the lease."""
    process = Process(
        [sys.executable, "-m", "escrowmq", *words, "--master", "local[1]"], folder=folder,
        name="other", environment={"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    until("it has the lease", lambda: is_held(words), within_s=START_S)
    os.kill(process.pid, signal.SIGSTOP)
    return process


@pytest.mark.long
@pytest.mark.parametrize("lease", ["file", "redis"], indirect=True)
def test_a_second_run_is_refused_while_the_first_one_lives(
    spark: SparkSession, words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    other = stopped_within(words, tmp_path)
    try:
        refused(words, capsys)
        os.kill(other.pid, signal.SIGCONT)
        until("the first one has ended", lambda: other.exit_code is not None, within_s=START_S)
        assert other.exit_code == 0, other.last_errors()
        assert main(words) == 0, capsys.readouterr().err
    finally:
        other.kill()


@pytest.mark.long
@pytest.mark.parametrize("lease", ["file", "redis"], indirect=True)
def test_the_lease_of_a_run_that_was_killed_ends_by_itself(
    spark: SparkSession, words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    stopped_within(words, tmp_path).kill()
    refused(words, capsys)
    until("the lease has ended", lambda: main(words) == 0, within_s=120)


@pytest.mark.parametrize("lease", ["redis"], indirect=True)
def test_a_run_is_refused_while_another_holds_the_lease_at_redis(
    spark: SparkSession, words: list[str], capsys: pytest.CaptureFixture[str],
    new_lease: Callable[[list[str]], AbstractContextManager[object]],
) -> None:  # fmt: skip
    with new_lease(words):
        refused(words, capsys)
    assert main(words) == 0, capsys.readouterr().err
    assert not is_held(words)


@pytest.fixture
def new_lease() -> Callable[[list[str]], AbstractContextManager[object]]:
    """Makes the lease that a command would take."""
    from escrowmq.cli.main import build_parser
    from escrowmq.cli.spark_options import new_lease

    return lambda words: new_lease(build_parser().parse_args(words))


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert "holds the lease" in errors
