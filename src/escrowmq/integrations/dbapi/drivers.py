"""Describes drivers, by the package of their connections: SQL dialect, parameter style, and whether
connections commit each statement by themselves."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from escrowmq.errors import UsageError
from escrowmq.integrations.outbox.steps import Rows, SqlStep
from escrowmq.integrations.outbox.tables import SqlFamily, Statement


class Driver(NamedTuple):
    """What the outbox must know about a driver."""

    family: SqlFamily
    style: str
    is_autocommit: Callable[[Any], bool]
    make_cursor: Callable[[Any], Any] = lambda connection: connection.cursor()
    """Makes a cursor that returns rows as tuples. A connection may be set up to return dictionaries
    or objects (`row_factory`, `DictCursor`)."""


def _psycopg_cursor(connection: Any) -> Any:  # noqa: ANN401
    rows = importlib.import_module("psycopg.rows")
    return connection.cursor(row_factory=rows.tuple_row)


def _psycopg2_cursor(connection: Any) -> Any:  # noqa: ANN401
    extensions = importlib.import_module("psycopg2.extensions")
    return connection.cursor(cursor_factory=extensions.cursor)


def _sqlite_cursor(connection: Any) -> Any:  # noqa: ANN401
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor


def _pymysql_cursor(connection: Any) -> Any:  # noqa: ANN401
    return connection.cursor(importlib.import_module("pymysql.cursors").Cursor)


def _mysqlclient_cursor(connection: Any) -> Any:  # noqa: ANN401
    return connection.cursor(importlib.import_module("MySQLdb.cursors").Cursor)


def _has_void_commit(connection: Any) -> bool:  # noqa: ANN401
    """Whether commit() does nothing, even after a BEGIN: SQLite's driver has such a mode since
    Python 3.12."""
    return getattr(connection, "autocommit", False) is True


async def has_void_commit_awaited(connection: Any) -> bool:  # noqa: ANN401
    """Whether commit() of an aiosqlite connection does nothing. aiosqlite does not show the mode,
    and SQLite's driver shows it only in the thread of its connection."""
    inner = connection._connection  # noqa: SLF001 - nothing public leads to it
    if not hasattr(type(inner), "autocommit"):
        return False
    return await connection._execute(_has_void_commit, inner) is True  # noqa: SLF001


def _is_sqlite_autocommit(connection: Any) -> bool:  # noqa: ANN401
    return _has_void_commit(connection) or _is_without_transactions(connection)


def _is_without_transactions(connection: Any) -> bool:  # noqa: ANN401
    # Without an isolation level, who writes BEGIN decides.
    return connection.isolation_level is None and not connection.in_transaction


_ATTRIBUTE: Final = lambda connection: bool(connection.autocommit)  # noqa: E731
_METHOD: Final = lambda connection: bool(connection.get_autocommit())  # noqa: E731

PLAIN: Final = {
    "psycopg": Driver(SqlFamily.POSTGRESQL, "format", _ATTRIBUTE, _psycopg_cursor),
    "psycopg2": Driver(SqlFamily.POSTGRESQL, "format", _ATTRIBUTE, _psycopg2_cursor),
    "sqlite3": Driver(SqlFamily.SQLITE, "qmark", _is_sqlite_autocommit, _sqlite_cursor),
    "pymysql": Driver(SqlFamily.MYSQL, "format", _METHOD, _pymysql_cursor),
    "MySQLdb": Driver(SqlFamily.MYSQL, "format", _METHOD, _mysqlclient_cursor),
    "mariadb": Driver(SqlFamily.MYSQL, "qmark", _ATTRIBUTE),
}

AWAITED: Final = {
    "psycopg": Driver(SqlFamily.POSTGRESQL, "format", _ATTRIBUTE, _psycopg_cursor),
    "asyncpg": Driver(SqlFamily.POSTGRESQL, "numeric_dollar", lambda _: False),
    # The mode without commits is looked for by `has_void_commit_awaited`.
    "aiosqlite": Driver(SqlFamily.SQLITE, "qmark", _is_without_transactions),
}


def find_driver(connection: object, known: dict[str, Driver]) -> tuple[str, Driver]:
    """Return the name of a connection's package, and the description of its driver."""
    for kind in type(connection).__mro__:
        name = kind.__module__.partition(".")[0]
        if name in known:
            return name, known[name]
    raise UsageError(
        f"the connection is {type(connection).__module__}.{type(connection).__name__}; those "
        f"of {', '.join(known)} are supported. A check of your own (docs/sdk.md) works with "
        "any"
    )


def begin_transaction(connection: Any, driver: Driver) -> None:  # noqa: ANN401
    """Begin a transaction if the driver does not do so; raises UsageError if that is impossible.
    SQLite's driver begins none for a savepoint, and none at all without an isolation level."""
    if driver.family is SqlFamily.SQLITE:
        if _has_void_commit(connection):
            raise _autocommit_error()
        if not connection.in_transaction:
            connection.execute("begin")
    refuse_autocommit(connection, driver)


async def begin_transaction_awaited(connection: Any, driver: Driver) -> None:  # noqa: ANN401
    """Do what `begin_transaction` does on an asyncio connection of psycopg or aiosqlite."""
    if driver.family is SqlFamily.SQLITE:
        if await has_void_commit_awaited(connection):
            raise _autocommit_error()
        if not connection.in_transaction:
            await connection.execute("begin")
    refuse_autocommit(connection, driver)


def refuse_autocommit(connection: object, driver: Driver) -> None:
    """Raise UsageError if the connection commits each statement."""
    if driver.is_autocommit(connection):
        raise _autocommit_error()


def _autocommit_error() -> UsageError:
    return UsageError(
        "the connection commits each statement by itself (autocommit), so messages cannot "
        "commit with it; turn that off, or begin a transaction first"
    )


def is_connection_autocommit(connection: Any) -> bool:  # noqa: ANN401
    """Whether a connection commits each statement by itself, as far as can be determined."""
    for kind in type(connection).__mro__:
        name = kind.__module__.partition(".")[0]
        driver = PLAIN.get(name) or AWAITED.get(name)
        if driver is not None:
            return driver.is_autocommit(connection)
    getter = getattr(connection, "get_autocommit", None)  # asyncmy's, aiomysql's
    if getter is not None:
        return bool(getter())
    return getattr(connection, "autocommit", False) is True  # pg8000's


def execute_on(connection: Any, driver: Driver, statement: Statement) -> Any:  # noqa: ANN401
    """Run one statement on a blocking connection; return its cursor."""
    cursor = driver.make_cursor(connection)
    cursor.execute(statement.in_paramstyle(driver.style), statement.values)
    return cursor


async def execute_on_awaited(connection: Any, driver: Driver, statement: Statement) -> Any:  # noqa: ANN401
    """Run one statement on a connection of psycopg or aiosqlite; return its cursor."""
    text = statement.in_paramstyle(driver.style)
    if driver.family is SqlFamily.SQLITE:  # whose connection makes the cursor on its own thread
        cursor = await connection.execute(text, statement.values)
        cursor.row_factory = None
        return cursor
    cursor = driver.make_cursor(connection)
    await cursor.execute(text, statement.values)
    return cursor


def execute_step(connection: Any, driver: Driver, step: SqlStep) -> Rows:  # noqa: ANN401
    """Run one step as a transaction of its own, on a blocking connection that is used for nothing
    else."""
    try:
        for each in step.before:
            execute_on(connection, driver, each)
        cursor = execute_on(connection, driver, step.statement)
        rows: Rows = [(cursor.rowcount,)]
        if step.is_read:
            rows = [tuple(row) for row in cursor.fetchall()]
        connection.commit()
        return rows
    except BaseException:
        connection.rollback()
        raise
    finally:
        for each in step.after:
            execute_on(connection, driver, each)
