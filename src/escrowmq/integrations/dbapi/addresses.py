"""Addresses of databases, for those who have no connection yet."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from escrowmq.base.extras import require
from escrowmq.errors import UsageError

CONNECT_TIMEOUT_S: Final = 10


def connector(address: str) -> Callable[[], Any]:
    """What makes connections to a database: `postgresql://user@host/name`, `mariadb://...` (or
    `mysql://`), `sqlite:///file`. UsageError, which shows no password, for what is none."""
    try:
        found = urlsplit(address)
        scheme, port = found.scheme.partition("+")[0], found.port
    except ValueError:
        scheme, found, port = "", SplitResult("", "", "", "", ""), None
    if scheme in ("postgresql", "postgres"):
        return _postgres(found._replace(scheme="postgresql").geturl())
    if scheme in ("mariadb", "mysql"):
        return _mariadb(found, port or 0)
    if scheme == "sqlite" and not found.netloc and len(found.path) > 1:
        file = unquote(found.path[1:])
        return lambda: sqlite3.connect(file, timeout=CONNECT_TIMEOUT_S)
    raise UsageError(
        "the database's address is expected as postgresql://user@host/name, mariadb://user@host/"
        "name or sqlite:///file (with four slashes for a path from the root)"
    )


def _postgres(address: str) -> Callable[[], Any]:
    require("postgres", "psycopg")
    import psycopg

    return lambda: psycopg.connect(address, connect_timeout=CONNECT_TIMEOUT_S)


def _mariadb(found: SplitResult, port: int) -> Callable[[], Any]:
    require("mariadb", "pymysql")
    import pymysql

    more = parse_qs(found.query)
    return lambda: pymysql.connect(
        host=found.hostname or "localhost",
        port=port,
        user=unquote(found.username or ""),
        password=unquote(found.password or ""),
        database=unquote(found.path[1:]),
        unix_socket=more.get("unix_socket", [None])[0],
        connect_timeout=CONNECT_TIMEOUT_S,
    )
