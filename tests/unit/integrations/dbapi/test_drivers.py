from __future__ import annotations

import asyncio
import sqlite3
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
    """As from Python 3.12 on, with autocommit=True: its commit() does nothing."""

    autocommit = True

    def commit(self) -> None:
        pass


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
        assert drivers.is_connection_autocommit(awaited)
        await awaited.close()

    aiosqlite = pytest.importorskip("aiosqlite")
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
