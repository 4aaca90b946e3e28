"""Redis, PostgreSQL and a forgetful broker; skipped where the servers are not installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.process import Process

from . import services

FOLDER = Path(__file__).parent
SHARE = 0.3
"""Of the transactions whose ENDs the broker forgets."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = services.missing()
    for item in items:
        if missing and FOLDER in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=f"not on this machine: {missing}"))


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[services.PostgresServer]:
    server = services.PostgresServer(tmp_path_factory.mktemp("postgres"))
    yield server
    server.stop()


@pytest.fixture
def database(postgres: services.PostgresServer) -> str:
    """An empty database of the test's own; its address."""
    return postgres.new_database()


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[services.RedisServer]:
    server = services.RedisServer(tmp_path / "redis")
    yield server
    server.kill()


@pytest.fixture
def snapshots(tmp_path: Path) -> Iterator[services.RedisServer]:
    """A Redis server that comes back as old as its last snapshot."""
    server = services.RedisServer(tmp_path / "snapshots", is_durable=False)
    yield server
    server.kill()


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[services.RedisServer]:
    """A second server, to be another one's replica."""
    server = services.RedisServer(tmp_path / "replica", is_durable=False)
    yield server
    server.kill()


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Starts the broker; the address of its name server."""
    started: list[Process] = []

    def start() -> str:
        process, nameserver = services.start_forgetful(tmp_path, share=SHARE)
        started.append(process)
        return nameserver

    yield start
    for process in started:
        process.kill()
