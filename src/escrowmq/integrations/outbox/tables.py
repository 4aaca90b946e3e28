"""The two tables, and every statement about them, for each family of databases.

`escrowmq_markers` says how a database transaction ended. Its row is written in that transaction:

| column | |
|---|---|
| `id` | the marker's key |
| `says` | `commit`; or `rollback`, inserted by a check that found no row |
| `made_ms` | by the database's clock, milliseconds since 1970 |

Two kinds of rows in it are not markers: the row with the id `database` has this database's name,
and each broker that may ask for markers has a row whose id is `broker:` and its name. Its `made_ms`
says when it took the first message; negative, when it was declared gone.

`escrowmq_handled` has the messages that consumers have handled, each written in the transaction of
that work.

Parameters are written as `?` here; `in_paramstyle` converts them to each driver's style.
"""

from __future__ import annotations

import enum
import hashlib
import re
from typing import Final, NamedTuple

from escrowmq.errors import UsageError

MARKERS: Final = "escrowmq_markers"
HANDLED: Final = "escrowmq_handled"
KEPT: Final = "escrowmq_kept"
NAME_ID: Final = "database"
BROKER: Final = "broker:"
"""Prefix of the ids of rows that record brokers."""

ID_SIZE_MAX: Final = 64
"""Limit of the characters of a key, and of a database's name."""

TEXT_SIZE_MAX: Final = 255
"""Limit of the characters of a consumer group, and of a message's identity."""

_KEY: Final = re.compile(r"[0-9A-F]{16,64}")
_SCHEMA: Final = re.compile(r"[^\W\d][\w$-]*")


class SqlFamily(enum.Enum):
    """Databases that use the same SQL here."""

    POSTGRESQL = "postgresql"
    MYSQL = "mysql"
    SQLITE = "sqlite"


FAMILIES: Final = {
    "postgresql": SqlFamily.POSTGRESQL,
    "mysql": SqlFamily.MYSQL,
    "mariadb": SqlFamily.MYSQL,
    "sqlite": SqlFamily.SQLITE,
}


class Statement(NamedTuple):
    """An SQL statement, and the values for its question marks."""

    text: str
    values: tuple[str | int | bytes, ...] = ()

    def in_schema(self, quoted: str) -> Statement:
        """Return this statement for tables in a schema; if it is empty, for the tables that the
        connection finds."""
        if not quoted:
            return self
        text = self.text
        for table in (MARKERS, HANDLED, KEPT):
            text = text.replace(table, f"{quoted}.{table}")
        return self._replace(text=text)

    def in_paramstyle(self, style: str) -> str:
        """Return the text with the placeholders of a driver's `paramstyle` (PEP 249;
        `numeric_dollar` is asyncpg's)."""
        if style == "qmark":
            return self.text
        if style in ("format", "pyformat"):
            return self.text.replace("?", "%s")
        if style in ("numeric", "numeric_dollar"):
            mark = ":" if style == "numeric" else "$"
            parts = self.text.split("?")
            ends = [f"{mark}{number}" for number in range(1, len(parts))]
            return "".join(part + end for part, end in zip(parts, [*ends, ""], strict=True))
        raise UsageError(
            f"a driver with paramstyle {style!r}; qmark, format, pyformat and numeric are supported"
        )


_NOW_MS: Final = {
    SqlFamily.POSTGRESQL: "cast(extract(epoch from clock_timestamp()) * 1000 as bigint)",
    SqlFamily.MYSQL: "cast(unix_timestamp(now(3)) * 1000 as unsigned)",
    SqlFamily.SQLITE: "cast((julianday('now') - 2440587.5) * 86400000 as integer)",
}


def now_ms_expression(family: SqlFamily) -> str:
    """Return an SQL expression for the database's clock, in milliseconds since 1970."""
    return _NOW_MS[family]


def sql_family_of(name: str) -> SqlFamily:
    """Return the family of a dialect, by SQLAlchemy's and Django's names. Raises UsageError for
    others."""
    found = FAMILIES.get(name)
    if found is None:
        raise UsageError(
            f"the database is {name!r}; the outbox supports {', '.join(FAMILIES)}. A check "
            "of your own (docs/sdk.md) works with any database"
        )
    return found


def schema_prefix(family: SqlFamily, schema: str) -> str:
    """Return a schema's name as a prefix of a table's; empty for none. Raises UsageError if it is
    invalid."""
    if not schema:
        return ""
    if _SCHEMA.fullmatch(schema) is None:
        raise UsageError(
            f"schema={schema!r}; letters, digits, underscores, hyphens and dollar signs are allowed"
        )
    return f"`{schema}`" if family is SqlFamily.MYSQL else f'"{schema}"'


def is_marker_key(text: str) -> bool:
    """Whether a text can be the key of a marker; input from the network may be anything."""
    return _KEY.fullmatch(text) is not None


# -- which table it is -----------------------------------------------------------------------

# An unqualified name is another table behind `set search_path`, `use`, or on a connection to
# elsewhere. PostgreSQL's is known by its number, the database, and when the server was started: to
# read the name each time would be a read that SERIALIZABLE transactions conflict about. The others
# know it by the name that stands in it.
_PROOF: Final = {
    SqlFamily.POSTGRESQL: f"concat('{MARKERS}'::regclass::oid, ' ', current_database(), ' ', "
    "extract(epoch from pg_postmaster_start_time()))",
    SqlFamily.MYSQL: "says",
    SqlFamily.SQLITE: "says",
}
_NAMED: Final = f"from {MARKERS} where id = '{NAME_ID}'"


class MarkerTable(NamedTuple):
    """A table of markers, identified by its database's name."""

    name: str
    """The name of its database, which markers carry."""
    proof: str
    """The value by which `insert_outcome_if_here` verifies that this is the table."""


def select_marker_table(family: SqlFamily) -> Statement:
    """Return the statement that selects the name and the proof of the table of markers that the
    connection finds. It finds no row before the database has a name."""
    return Statement(f"select says, {_PROOF[family]} {_NAMED}")


def insert_outcome_if_here(family: SqlFamily, key: str, says: str, *, proof: str) -> Statement:
    """Return the statement that inserts a transaction's outcome, but only into the table with this
    proof. It changes one row, or none if the connection finds another table. It fails if the key
    has a row."""
    if family is SqlFamily.POSTGRESQL:
        source = f"where {_PROOF[family]} = ?"
    else:
        source = f"{_NAMED} and says = ?"
    return Statement(
        f"insert into {MARKERS} (id, says, made_ms) select ?, ?, {_NOW_MS[family]} {source}",
        (key, says, proof),
    )


# -- markers ---------------------------------------------------------------------------------


def insert_outcome(family: SqlFamily, key: str, says: str) -> Statement:
    """Return the statement that inserts a transaction's outcome. It fails if the key has a row."""
    return Statement(
        f"insert into {MARKERS} (id, says, made_ms) values (?, ?, {_NOW_MS[family]})",
        (key, says),
    )


def change_to_rollback(key: str) -> Statement:
    """Return the statement that changes a marker of this transaction to a rollback. It is used if
    the messages are sent in another way, while a broker may have stored some of them."""
    return Statement(f"update {MARKERS} set says = 'rollback' where id = ?", (key,))


def select_outcome(key: str) -> Statement:
    """Return the statement that selects the outcome recorded for a key."""
    return Statement(f"select says from {MARKERS} where id = ?", (key,))


def touch_marker(key: str) -> Statement:
    """Return the statement that updates a marker without changing it: one row, or none if there is
    no marker."""
    # Not a select: if its task is cancelled, it stays open, and with it the lock on SQLite. The
    # value must change: for some drivers an equal value counts as no change.
    return Statement(f"update {MARKERS} set made_ms = made_ms + 1 where id = ?", (key,))


def limit_lock_wait(
    family: SqlFamily, *, lock_wait_s: int
) -> tuple[list[Statement], list[Statement]]:
    """Return statements to run before and after another one in its transaction, which limit how
    long it waits for a lock. SQLite's connections have a timeout of their own."""
    if family is SqlFamily.POSTGRESQL:
        # A serializable check would conflict with the transactions that it asks about.
        isolation = Statement("set transaction isolation level read committed")
        return [isolation, Statement(f"set local lock_timeout = {lock_wait_s * 1000}")], []
    if family is SqlFamily.MYSQL:
        name = "innodb_lock_wait_timeout"
        keep = Statement(f"set @escrowmq_wait = @@{name}, {name} = {lock_wait_s}")
        return [keep], [Statement(f"set {name} = @escrowmq_wait")]
    return [], []


def name_database(family: SqlFamily, name: str) -> Statement:
    """Return the statement that gives the database a name, unless it has one."""
    return _insert_if_missing(family, NAME_ID, name)


def _insert_if_missing(family: SqlFamily, key: str, says: str) -> Statement:
    # No plain insert whose failure is caught: PostgreSQL would take nothing more of the
    # transaction.
    ignore = " ignore" if family is SqlFamily.MYSQL else ""
    end = "" if family is SqlFamily.MYSQL else " on conflict do nothing"
    return Statement(
        f"insert{ignore} into {MARKERS} (id, says, made_ms) values (?, ?, {_NOW_MS[family]}){end}",
        (key, says),
    )


# -- brokers ---------------------------------------------------------------------------------


def broker_id(name: str) -> str:
    """Return the id of the row that records a broker."""
    if name.isascii() and name.isprintable() and len(BROKER) + len(name) <= ID_SIZE_MAX:
        return BROKER + name
    return BROKER + hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:48]


def record_broker(family: SqlFamily, name: str) -> Statement:
    """Return the statement that records that a broker may ask for markers, unless that is
    recorded."""
    says = "".join(letter if letter.isascii() else "?" for letter in name)[:ID_SIZE_MAX]
    return _insert_if_missing(family, broker_id(name), says)


def select_brokers() -> Statement:
    """Return the statement that selects the recorded brokers: id, name (as far as it fits into the
    column), and when each took the first message."""
    return Statement(f"select id, says, made_ms from {MARKERS} where {_IS_BROKER} order by id")


def select_broker(family: SqlFamily, name: str) -> Statement:
    """Return the statement that reads a recorded broker's row: the time of its first message
    (negative if the broker was declared gone), and the database's clock."""
    text = f"select made_ms, {_NOW_MS[family]} from {MARKERS} where id = ?"
    return Statement(text, (broker_id(name),))


def touch_broker(family: SqlFamily, name: str, *, older_than_ms: int) -> Statement:
    """Return the statement that updates a broker's row without changing it: one row, if the broker
    was recorded longer ago than `older_than_ms` and is not gone; otherwise none."""
    return Statement(
        f"update {MARKERS} set made_ms = made_ms where id = ? and made_ms >= 0 "
        f"and made_ms <= {_NOW_MS[family]} - {older_than_ms}",
        (broker_id(name),),
    )


def reset_gone_broker(family: SqlFamily, name: str) -> Statement:
    """Return the statement that records that a broker declared gone takes messages again."""
    renewed = reset_broker(family, name)
    return renewed._replace(text=f"{renewed.text} and made_ms < 0")


def reset_broker(family: SqlFamily, name: str) -> Statement:
    """Return the statement that sets the time of a broker's first message to now: it has none of
    its earlier messages any more."""
    return Statement(
        f"update {MARKERS} set made_ms = {_NOW_MS[family]} where id = ?", (broker_id(name),)
    )


def mark_broker_gone(name: str, *, now_ms: int) -> Statement:
    """Return the statement that records that a broker will never come back. The row stays:
    processes that have seen it would not write another if a broker of that name takes messages
    again."""
    return Statement(f"update {MARKERS} set made_ms = ? where id = ?", (-now_ms, broker_id(name)))


# -- handled messages ------------------------------------------------------------------------


def insert_handled(family: SqlFamily, group: str, message_id: str) -> Statement:
    """Return the statement that records that a group handles a message. It changes one row, or none
    if that was recorded before."""
    # No plain insert whose failure is caught: PostgreSQL would take nothing more of the
    # transaction, which is that of the work.
    ignore = " ignore" if family is SqlFamily.MYSQL else ""
    end = "" if family is SqlFamily.MYSQL else " on conflict do nothing"
    return Statement(
        f"insert{ignore} into {HANDLED} (consumer_group, message_id, made_ms) "
        f"values (?, ?, {_NOW_MS[family]}){end}",
        (group, message_id),
    )


def delete_handled_message(group: str, message_id: str) -> Statement:
    """Return the statement that deletes the record of a handled message, so that the message is
    handled again when it is redelivered."""
    return Statement(
        f"delete from {HANDLED} where consumer_group = ? and message_id = ?", (group, message_id)
    )


# -- expiry ----------------------------------------------------------------------------------


def select_now(family: SqlFamily) -> Statement:
    """Return the statement that selects the database's clock."""
    return Statement(f"select {_NOW_MS[family]}")


# Not `like`: its percent sign would have to be doubled for some drivers.
_IS_BROKER: Final = f"substr(id, 1, {len(BROKER)}) = '{BROKER}'"


def select_old_markers(*, made_before_ms: int, after: str, count_max: int) -> Statement:
    """Return the statement that selects the keys and times of markers made before a time, in the
    order of the keys, after the key `after`."""
    return Statement(
        f"select id, made_ms from {MARKERS} where id > ? and made_ms < ? and id <> '{NAME_ID}' "
        f"and not {_IS_BROKER} order by id limit {count_max}",
        (after, made_before_ms),
    )


def delete_markers(keys: list[str]) -> Statement:
    """Return the statement that deletes markers by key."""
    marks = ", ".join("?" * len(keys))
    return Statement(f"delete from {MARKERS} where id in ({marks})", tuple(keys))


def delete_handled(family: SqlFamily, *, made_before_ms: int, count_max: int) -> Statement:
    """Return the statement that deletes up to `count_max` records of messages handled before a
    time."""
    if family is SqlFamily.MYSQL:
        return Statement(
            f"delete from {HANDLED} where made_ms < ? limit {count_max}", (made_before_ms,)
        )
    row = "ctid" if family is SqlFamily.POSTGRESQL else "rowid"
    return Statement(
        f"delete from {HANDLED} where {row} in (select {row} from {HANDLED} where made_ms < ? "
        f"limit {count_max})",
        (made_before_ms,),
    )
