"""Fixtures of the SDK's tests: `pytest tests/sdk` uses EscrowMQ's servers, with `--peer=java`
Apache RocketMQ's."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop import jars, servers
from tests.interop.drivers import unique
from tests.interop.servers import Server

from .interrupts import TALLY

SETTINGS: dict[str, Any] = {
    "messageDelayLevel": "1s 2s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 3s",
    "transactionTimeOut": 1_000,
    "transactionCheckInterval": 1_000,
    "recallMessageEnable": True,
}
JAVA_SETTINGS = {"transactionCheckInterval": 4_000}
"""RocketMQ's own algorithm needs more than its batches of op messages take."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip where the foreign broker cannot be, and what is EscrowMQ's alone."""
    if config.getoption("--peer") != "java":
        return
    missing = jars.missing_tools("java", "mvn", "cc")
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        if missing:
            item.add_marker(pytest.mark.skip(reason=f"not on this machine: {missing}"))
        if item.get_closest_marker("ours_alone"):
            item.add_marker(pytest.mark.skip(reason="only EscrowMQ's brokers have this"))


def start(peer: str, folder: Path, **settings: object) -> Server:
    """A server with the settings of these tests and further ones."""
    chosen = {**SETTINGS, **(JAVA_SETTINGS if peer == "java" else {}), **settings}
    return Server(peer, folder, chosen).start()


@pytest.fixture(scope="session")
def server(peer: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server that most tests share."""
    shared = start(peer, tmp_path_factory.mktemp("server"))
    yield shared
    shared.kill()


@pytest.fixture
def own_server(peer: str, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers that a test may kill."""
    started: list[Server] = []

    def make(**settings: object) -> Server:
        started.append(start(peer, tmp_path / f"server{len(started)}", **settings))
        return started[-1]

    yield make
    for each in started:
        each.kill()


@pytest.fixture
def topic(server: Server) -> str:
    """A topic of this test alone, with four queues."""
    return new_topic(server)


@pytest.fixture
def group() -> str:
    """A producer group of this test alone."""
    return unique("PG")


def new_topic(server: Server, *, queues: int = 4) -> str:
    """Create a topic of this test alone and return its name once it has a route."""
    return servers.new_topic(server, unique("T"), queues=queues)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A line a call: at how many points it was interrupted or cancelled, and what came of it."""
    for name, outcomes in TALLY.items():
        points = sum(outcomes.values())
        told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
        terminalreporter.write_line(f"{name}: {points} points ({told})")
