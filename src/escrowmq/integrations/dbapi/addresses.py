"""Connects to databases by addresses, for commands that have no connection yet."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from escrowmq.base.extras import require_extra
from escrowmq.errors import UsageError

CONNECT_TIMEOUT_S: Final = 10

_MARIADB_TEXTS: Final = ("unix_socket", "ssl_ca", "ssl_cert", "ssl_key")
_MARIADB_SWITCHES: Final = ("ssl_verify_cert", "ssl_verify_identity", "ssl_disabled")
_NO_CODE: Final = re.compile("%(?![0-9A-Fa-f]{2})")
_SWITCH: Final = {"true": True, "1": True, "false": False, "0": False}


def make_connector(address: str, *, must_exist: bool = False) -> Callable[[], Any]:
    """Return a function that connects to a database: `postgresql://user@host/name`, `mariadb://...`
    (or `mysql://`), `sqlite:///file`. Raises UsageError, which shows no password, for an invalid
    address. With `must_exist`, no file is created: SQLite would make one for every typing error."""
    try:
        found = urlsplit(address)
        scheme, port = found.scheme.partition("+")[0], found.port
    except ValueError:
        scheme, found, port = "", SplitResult("", "", "", "", ""), None
    if scheme in ("postgresql", "postgres"):
        return _postgres_connector(found)
    if scheme in ("mariadb", "mysql"):
        return _mariadb_connector(found, port or 0)
    if scheme == "sqlite" and not found.netloc and len(found.path) > 1:
        file = Path(unquote(found.path[1:]))
        _options(found, ())
        if must_exist and not file.is_file():
            raise UsageError(
                f"there is no file {str(file.absolute())!r}; correct the path, which has four "
                "slashes if it begins at the root"
            )
        return lambda: sqlite3.connect(file, timeout=CONNECT_TIMEOUT_S)
    raise UsageError(
        "the database's address is expected as postgresql://user@host/name, mariadb://user@host/"
        "name or sqlite:///file (with four slashes for a path from the root)"
    )


def _postgres_connector(found: SplitResult) -> Callable[[], Any]:
    require_extra("postgres", "psycopg")
    import psycopg

    # Not the address itself: where PostgreSQL's library cannot read it, its error shows all of it.
    parts = _postgres_parts(found)
    parts["connect_timeout"] = str(CONNECT_TIMEOUT_S)
    try:
        text = psycopg.conninfo.make_conninfo("", **parts)
    except psycopg.Error:
        names = ", ".join(_postgres_options(found))
        raise UsageError(
            f"the database's address has the options {names}; PostgreSQL's library does not know "
            "one of them"
        ) from None
    return lambda: psycopg.connect(text)


def _postgres_parts(found: SplitResult) -> dict[str, str]:
    """Return the options of libpq that an address means."""
    if found.fragment or "@" in found.path + found.query:
        raise _not_encoded_error()
    user_info, _, host_info = found.netloc.rpartition("@")
    user, _, password = user_info.partition(":")
    host, _, port = host_info.partition(":")
    if host_info.startswith("["):  # an address of IPv6
        host, _, port = host_info[1:].partition("]")
    values = (user, password, host, port.lstrip(":"), found.path[1:])
    parts = zip(("user", "password", "host", "port", "dbname"), values, strict=True)
    named = {name: _percent_decode(value) for name, value in parts if value}
    return {**named, **_postgres_options(found)}


def _postgres_options(found: SplitResult) -> dict[str, str]:
    options: dict[str, str] = {}
    for each in filter(None, found.query.split("&")):
        name, equals, value = each.partition("=")
        if not equals or not name.isidentifier():
            raise _not_encoded_error()
        options[name] = _percent_decode(value)
    if options.get("ssl") == "true":  # as libpq reads the addresses of JDBC
        del options["ssl"]
        options["sslmode"] = "require"
    return options


def _percent_decode(text: str) -> str:
    try:
        decoded = unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise _not_encoded_error() from None
    if _NO_CODE.search(text) or "\0" in decoded:
        raise _not_encoded_error()
    return decoded


def _not_encoded_error() -> UsageError:
    return UsageError(
        "the database's address has a sign that must be percent-encoded, often in the password: "
        "write % as %25, @ as %40, / as %2F, ? as %3F, # as %23; options are name=value"
    )


def _mariadb_connector(found: SplitResult, port: int) -> Callable[[], Any]:
    require_extra("mariadb", "pymysql")
    import pymysql

    options: dict[str, Any] = {}
    for name, value in _options(found, (*_MARIADB_TEXTS, *_MARIADB_SWITCHES)).items():
        if name in _MARIADB_TEXTS:
            options[name] = value
        elif value.lower() in _SWITCH:
            options[name] = _SWITCH[value.lower()]
        else:
            raise UsageError(
                f"the database's address has {name}={value}; true or false is expected"
            )
    return lambda: pymysql.connect(
        host=found.hostname or "localhost",
        port=port,
        user=unquote(found.username or ""),
        password=unquote(found.password or ""),
        database=unquote(found.path[1:]),
        connect_timeout=CONNECT_TIMEOUT_S,
        **options,
    )


def _options(found: SplitResult, known: tuple[str, ...]) -> dict[str, str]:
    """Return the options in an address, which follow its question mark. Raises UsageError for
    options that would be ignored silently, for example a certificate that is never checked."""
    options: dict[str, str] = {}
    for name, values in parse_qs(found.query, keep_blank_values=True).items():
        if name not in known:
            allowed = f"{', '.join(known)} are known" if known else "none is known"
            raise UsageError(
                f"the database's address has the option {name!r}; of {found.scheme}, {allowed}"
            )
        options[name] = values[-1]
    return options
