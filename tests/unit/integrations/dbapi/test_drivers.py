from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from escrowmq.errors import UsageError
from escrowmq.integrations.dbapi import drivers
from escrowmq.integrations.dbapi.async_outbox import transaction_on
from escrowmq.integrations.dbapi.drivers import AWAITED, PLAIN, find_driver
from escrowmq.integrations.outbox.steps import SqlStep
from escrowmq.integrations.outbox.tables import SqlFamily, Statement


class Sub(sqlite3.Connection):
    """A connection of the user's own kind."""


class Modern(sqlite3.Connection):
    """As from Python 3.12 on, with autocommit=True: its commit() does nothing. Its own thread alone
    may read the mode."""

    mode = True

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._thread = threading.get_ident()

    @property
    def autocommit(self) -> bool:  # type: ignore[override,unused-ignore]
        if threading.get_ident() != self._thread:
            raise sqlite3.ProgrammingError("SQLite objects created in a thread ...")
        return self.mode

    def commit(self) -> None:
        pass


class Legacy(Modern):
    """Without that argument."""

    mode = False

    def commit(self) -> None:
        sqlite3.Connection.commit(self)


@pytest.fixture
def connection() -> Any:
    made = sqlite3.connect(":memory:", factory=Sub)
    yield made
    made.close()


def test_a_connection_is_known_by_the_package_of_any_of_its_classes(connection: Any) -> None:
    assert find_driver(connection, PLAIN) == ("sqlite3", PLAIN["sqlite3"])
    with pytest.raises(UsageError, match="those of psycopg, asyncpg, aiosqlite"):
        find_driver(connection, AWAITED)


def test_a_step_that_fails_is_rolled_back_and_what_follows_it_is_done(connection: Any) -> None:
    driver = PLAIN["sqlite3"]
    connection.execute("create table t (n integer primary key)")
    step = SqlStep(
        Statement("insert into t values (1), (1)"),
        before=(Statement("insert into t values (2)"),),
        after=(Statement("create table later (n)"),),
    )
    with pytest.raises(sqlite3.IntegrityError):
        drivers.execute_step(connection, driver, step)
    read = SqlStep(Statement("select count(*) from t, later"), is_read=True)
    assert drivers.execute_step(connection, driver, read) == [(0,)]
    insert = SqlStep(Statement("insert into t values (?), (?)", (3, 4)))
    assert drivers.execute_step(connection, driver, insert) == [(2,)]


def test_a_transaction_is_begun_where_the_driver_would_not(connection: Any) -> None:
    assert find_driver(connection, PLAIN)[1].family is SqlFamily.SQLITE
    for level in ("", None):
        connection.isolation_level = level
        drivers.begin_transaction(connection, PLAIN["sqlite3"])
        assert connection.in_transaction
        connection.rollback()


def test_none_is_begun_that_commit_would_not_end(tmp_path: Path) -> None:
    """It stayed open behind the refusal, with all that the program did next. And aiosqlite's was
    not refused: messages were sent of transactions that never committed."""
    modern = sqlite3.connect(tmp_path / "shop.db", factory=Modern)
    with pytest.raises(UsageError, match="turn that off"):
        drivers.begin_transaction(modern, PLAIN["sqlite3"])
    assert not modern.in_transaction
    modern.close()

    async def go() -> None:
        awaited = await aiosqlite.connect(tmp_path / "shop.db", factory=Modern)
        with pytest.raises(UsageError, match="turn that off"):
            await transaction_on(awaited).begin()
        assert not awaited.in_transaction
        await awaited.execute("begin")
        with pytest.raises(UsageError, match="turn that off"):
            await transaction_on(awaited).begin()
        await awaited.close()

    aiosqlite = pytest.importorskip("aiosqlite")
    asyncio.run(go())


def test_the_mode_of_an_awaited_connection_is_read_in_its_own_thread(tmp_path: Path) -> None:
    """From Python 3.12 on, no outbox or inbox worked with aiosqlite: the mode cannot be read
    elsewhere."""

    async def go() -> None:
        awaited = await aiosqlite.connect(tmp_path / "shop.db", factory=Legacy)
        transaction = transaction_on(awaited)
        await transaction.begin()
        assert awaited.in_transaction
        await transaction.commit()
        assert not awaited.in_transaction
        await awaited.close()

    aiosqlite = pytest.importorskip("aiosqlite")
    asyncio.run(go())


@pytest.mark.parametrize("factory", [Legacy, Modern])
def test_sqlalchemys_reads_it_there_as_well(tmp_path: Path, factory: type[Modern]) -> None:
    async def go() -> None:
        engine = sa_asyncio.create_async_engine(
            f"sqlite+aiosqlite:///{tmp_path / 'shop.db'}", connect_args={"factory": factory}
        )
        async with engine.connect() as connection:
            if factory is Modern:
                with pytest.raises(UsageError, match="leave autocommit out of connect_args"):
                    await connection.run_sync(hooks.refuse_autocommit)
            else:
                await connection.run_sync(hooks.refuse_autocommit)
        await engine.dispose()

    pytest.importorskip("aiosqlite")
    sa_asyncio = pytest.importorskip("sqlalchemy.ext.asyncio")
    hooks = pytest.importorskip("escrowmq.integrations.sqlalchemy.hooks")
    asyncio.run(go())


def test_any_driver_is_asked_whether_it_commits_each_statement(connection: Any) -> None:
    class Asyncmy:
        def get_autocommit(self) -> int:
            return 1

    class Pg8000:
        autocommit = True

    modern = sqlite3.connect(":memory:", factory=Modern)
    modern.execute("begin")
    assert [drivers.is_connection_autocommit(each) for each in (Asyncmy(), Pg8000(), modern)] == [
        True
    ] * 3
    assert not drivers.is_connection_autocommit(connection)
    assert not drivers.is_connection_autocommit(object())
    modern.close()
