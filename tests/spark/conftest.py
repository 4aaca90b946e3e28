"""One Spark session and one broker for all of these tests; skipped where PySpark or Java is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop import jars, servers
from tests.interop.drivers import unique
from tests.interop.servers import Server

from .releases import has_limits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip everything here where there is no Spark."""
    missing = jars.missing_tools("java")
    try:
        import pyspark  # noqa: F401
    except ImportError:
        missing = "pyspark"
    for item in items:
        if FOLDER not in item.path.parents:
            continue
        if missing:
            item.add_marker(pytest.mark.skip(reason=f"not on this machine: {missing}"))
        elif not has_limits():
            # PySpark 4.1 closes the socket of `collect()` only when it is forgotten.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session; executors and planners use this Python."""
    from .sessions import build_quick_session

    # A task that fails fails its job: what tests of retries need is in processes of their own.
    session = build_quick_session("local[2]", tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """EscrowMQ's name server and broker."""
    shared = Server("escrow", tmp_path_factory.mktemp("server"), {"enablePropertyFilter": True})
    yield shared.start()
    shared.kill()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers that a test may kill."""
    started: list[Server] = []

    def make(kind: str = "escrow", **settings: object) -> Server:
        folder = tmp_path / f"server{len(started)}"
        started.append(Server(kind, folder, settings).start())
        return started[-1]

    yield make
    for each in started:
        each.kill()


@pytest.fixture
def topic(server: Server) -> str:
    """A topic of this test alone, with four queues."""
    return servers.new_topic(server, unique("T"))
