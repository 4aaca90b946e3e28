"""Databases of the tests' own: SQLite always, PostgreSQL and MariaDB where they are installed.
And a broker that asks after a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.compensation.services import PostgresServer, missing_postgres
from tests.interop import servers
from tests.interop.drivers import unique
from tests.interop.servers import Server

from . import mariadb

KINDS = ("sqlite", "postgresql", "mariadb")


@dataclass
class Place:
    """An empty database, as each library wants its address."""

    kind: str
    url: str
    """SQLAlchemy's, for plain code."""
    async_url: str = ""
    address: str = ""
    """A file, what psycopg and asyncpg take, or MariaDB's socket."""
    name: str = ""
    """Of the database, where the address does not have it."""


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    if missing := missing_postgres():
        pytest.skip(f"not on this machine: {missing}")
    server = PostgresServer(tmp_path_factory.mktemp("postgres"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def maria(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mariadb.MariaDbServer]:
    if missing := mariadb.missing():
        pytest.skip(f"not on this machine: {missing}")
    server = mariadb.MariaDbServer(tmp_path_factory.mktemp("mariadb"))
    yield server
    server.stop()


@pytest.fixture
def postgres_address(postgres: PostgresServer) -> str:
    """An empty database."""
    return postgres.new_database()


@pytest.fixture
def new_place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Place]:
    """Makes empty databases of a kind."""
    files = iter(range(100))

    def make(kind: str) -> Place:
        if kind == "sqlite":
            file = tmp_path / f"shop{next(files)}.db"
            return Place(kind, f"sqlite:///{file}", f"sqlite+aiosqlite:///{file}", str(file))
        if kind == "postgresql":
            address = request.getfixturevalue("postgres").new_database()
            rest = address.partition("://")[2]
            return Place(
                kind, f"postgresql+psycopg://{rest}", f"postgresql+asyncpg://{rest}", address
            )
        server = request.getfixturevalue("maria")
        name = server.new_database()
        url = f"mysql+pymysql://root@localhost/{name}?unix_socket={server.socket}"
        return Place(kind, url, address=server.socket, name=name)

    return make


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, new_place: Callable[[str], Place]) -> Place:
    """An empty database of each kind."""
    return new_place(request.param)


@pytest.fixture(scope="session")
def server(peer: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The broker that most tests share: it asks about what is open for a second."""
    settings = {"transactionTimeOut": 1_000, "transactionCheckInterval": 1_000}
    shared = Server(peer, tmp_path_factory.mktemp("server"), settings).start()
    yield shared
    shared.kill()


@pytest.fixture
def topic(server: Server) -> str:
    """A topic of this test alone."""
    return servers.new_topic(server, unique("T"), queues=4)


@pytest.fixture
def group() -> str:
    """A producer group of this test alone."""
    return unique("PG")
