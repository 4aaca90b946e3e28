"""Fixtures of the interop tests: one server and one process a client release for the whole session.

`pytest tests/interop` judges EscrowMQ; with `--peer=java` the same tests run against Apache
RocketMQ, which proves the tests.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from . import jars
from .drivers import Driver, GoDriver, JavaDriver, unique
from .servers import Server, new_topic

CLIENTS = ("java-5.3.3", "java-5.5.0", "java-4.9.8", "java-5.3.3-binary", "go")
KINDS = [
    pytest.param(name, marks=[pytest.mark.long] if name == "java-5.3.3" else []) for name in CLIENTS
]
"""One of each kind, of the newest release and the oldest. 5.3.3 with headers in JSON is what all
tests get that want a Java client and do not say which; `make interop` runs the rest with it too."""

# One server serves most tests, so its settings are the sum of what they need: quick levels for
# retries (level 3 is the first retry), checks as quick as RocketMQ's own algorithm stands.
SETTINGS: dict[str, Any] = {
    "enablePropertyFilter": True,
    "messageDelayLevel": "1s 2s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 3s",
    "transactionTimeOut": 1_000,
    "transactionCheckInterval": 4_000,
    "recallMessageEnable": True,
}


def pytest_configure(config: pytest.Config) -> None:
    """Name the marker."""
    config.addinivalue_line("markers", "interop: real foreign clients or brokers take part")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder; skip them where the foreign tools are absent."""
    missing = jars.missing_tools("java", "javac", "mvn", "cc")
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        item.add_marker(pytest.mark.interop)
        if missing:
            item.add_marker(pytest.mark.skip(reason=f"not on this machine: {missing}"))
        if item.get_closest_marker("ours_alone") and item.config.getoption("--peer") == "java":
            item.add_marker(pytest.mark.skip(reason="only EscrowMQ's brokers have this"))


@pytest.fixture(scope="session")
def server_factory(
    peer: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Server]]:
    """Starts further servers with settings of their own; all end with the session."""
    started: list[Server] = []

    def start(**settings: object) -> Server:
        server = Server(peer, tmp_path_factory.mktemp("server"), settings)
        started.append(server)
        return server.start()

    yield start
    for server in started:
        server.kill()


@pytest.fixture(scope="session")
def server(peer: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server that most tests share."""
    shared = Server(peer, tmp_path_factory.mktemp("server"), SETTINGS).start()
    yield shared
    if peer == "escrow":
        shared.stop()
    else:
        shared.kill()  # a clean stop of the Java broker takes a quarter of a minute


@pytest.fixture(scope="session")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Driver]]:
    """Drivers by name, each started when it is first asked for."""
    folder = tmp_path_factory.mktemp("drivers")
    started: dict[str, Driver] = {}

    def driver(name: str) -> Driver:
        if name not in started:
            if name == "go":
                started[name] = GoDriver(folder)
            else:
                _, release, *rest = name.split("-")
                started[name] = JavaDriver(release, folder, is_binary=rest == ["binary"])
        return started[name]

    yield driver
    for each in started.values():
        each.stop()


@pytest.fixture(params=KINDS)
def client(request: pytest.FixtureRequest, drivers: Callable[[str], Driver]) -> Iterator[Driver]:
    """Every kind of client in turn."""
    if request.param == "go" and (missing := jars.missing_tools("go")):
        pytest.skip(f"not on this machine: {missing}")
    driver = drivers(request.param)
    yield driver
    driver.close_clients()


@pytest.fixture(params=["java-5.3.3"])
def java(request: pytest.FixtureRequest, drivers: Callable[[str], Driver]) -> Iterator[JavaDriver]:
    """The Java client, 5.3.3 unless a test asks for others."""
    driver = drivers(request.param)
    assert isinstance(driver, JavaDriver)
    yield driver
    driver.close_clients()


@pytest.fixture
def topic(server: Server, drivers: Callable[[str], Driver]) -> str:
    """A topic of this test alone, with four queues."""
    return new_topic(server, unique("T"))
