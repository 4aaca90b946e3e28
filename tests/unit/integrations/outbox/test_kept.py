from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from escrowmq.client.core.message import Message
from escrowmq.client.core.validation import check_message
from escrowmq.errors import InvalidMessage, UsageError
from escrowmq.integrations.outbox import kept, schema
from escrowmq.integrations.outbox.steps import run_steps
from escrowmq.integrations.outbox.tables import SqlFamily, Statement

LITE = SqlFamily.SQLITE


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "shop.db")
    for statement in schema.create_statements(LITE):
        connection.execute(statement.text)
    yield connection
    connection.close()


def rows(database: sqlite3.Connection, statement: Statement) -> list[tuple[object, ...]]:
    return [tuple(row) for row in database.execute(statement.text, statement.values)]


def keep(database: sqlite3.Connection, bundle: str, *messages: Message) -> None:
    for statement in kept.insert_rows(LITE, messages, bundle=bundle, now_ms=5_000):
        database.execute(statement.text, statement.values)


def page(database: sqlite3.Connection, after: int = 0, **more: object) -> list[kept.KeptRow]:
    statement = kept.select_page(LITE, after=after, count_max=200, is_locked=True, **more)  # type: ignore[arg-type]
    return kept.parse_rows(rows(database, statement))


def read(database: sqlite3.Connection, some: list[kept.KeptRow]) -> list[Message]:
    return run_steps(kept.read_messages(some), lambda step: rows(database, step.statement))


def test_a_message_comes_back_as_it_was_kept(database: sqlite3.Connection) -> None:
    message = Message(
        "paid",
        b"\x00\xff",
        tag="card",
        keys=["o-1", "o-2"],
        properties={"shop": "3", "é": "ü"},
        order_key="customer 7",
        delay_level=3,
        flag=5,
    )
    keep(database, "B1", message, Message("stock", b""))
    found = page(database)
    assert read(database, found) == [message, Message("stock", b"")]
    assert found == [(1, "B1", 2, "paid", 2), (2, "B1", 2, "stock", 0)]


def test_none_is_kept_as_what_a_message_does_not_have(database: sqlite3.Connection) -> None:
    """`order_key=None` is taken when a message is sent. Kept, it could not be read again, and no
    message of the database was sent any more."""
    nothing: Any = None
    message = Message("T", b"x", tag=nothing, keys=nothing, properties=nothing, order_key=nothing)
    check_message(message, body_size_max=9)
    keep(database, "B1", message)
    assert read(database, page(database)) == [Message("T", b"x")]


@pytest.mark.parametrize("fields", ["", "{", '{"tag":5}', '{"flag":"x"}'])
def test_fields_that_cannot_be_read_count_as_refused(
    database: sqlite3.Connection, fields: str
) -> None:
    keep(database, "B1", Message("T", b"x"))
    database.execute("update escrowmq_kept set fields = ?", (fields,))
    with pytest.raises(InvalidMessage, match="of the row 1 of escrowmq_kept cannot be read"):
        read(database, page(database))


@pytest.mark.parametrize(
    ("message", "deliver_at"),
    [
        (Message("T", b"", delay=2.5), 7.5),
        (Message("T", b"", delay=dt.timedelta(minutes=1)), 65.0),
        (Message("T", b"", deliver_at=99.0), 99.0),
        (Message("T", b"", deliver_at=dt.datetime(1970, 1, 1, 0, 2, tzinfo=dt.UTC)), 120.0),
    ],
)
def test_a_delay_begins_when_the_message_is_kept(
    database: sqlite3.Connection, message: Message, deliver_at: float
) -> None:
    keep(database, "B", message)
    (found,) = read(database, page(database))
    assert (found.deliver_at, found.delay) == (deliver_at, None)


def test_large_bundles_are_written_and_deleted_in_several_statements(
    database: sqlite3.Connection,
) -> None:
    many = [Message("T", str(number).encode()) for number in range(1_000)]
    assert len(kept.insert_rows(LITE, many, bundle="B", now_ms=0)) == 10
    keep(database, "B", *many)
    assert len(page(database)) == 200
    assert kept.group_by_bundle(page(database)) == []
    whole = page(database, bundle="B")
    assert read(database, whole) == many
    assert kept.group_by_bundle(whole) == [whole]
    for statement in kept.delete_rows([row.position for row in whole[1:]]):
        database.execute(statement.text, statement.values)
    assert page(database) == whole[:1]
    with pytest.raises(kept.SentByAnother):
        read(database, whole)


def test_a_statement_has_no_more_bytes_than_a_database_takes_at_once(
    database: sqlite3.Connection,
) -> None:
    """MariaDB takes 16 MiB, in which a driver may write each byte as two."""
    half = bytes(kept.STATEMENT_SIZE_MAX // 2 - 100)
    many = [Message("T", body) for body in (half, half, half, b"x", 3 * half, b"y")]
    sizes = [
        [len(value) for value in statement.values if isinstance(value, bytes)]
        for statement in kept.insert_rows(LITE, many, bundle="B", now_ms=0)
    ]
    assert sizes == [[len(half)] * 2, [len(half), 1], [3 * len(half)], [1]]
    keep(database, "B", *many)
    assert read(database, page(database)) == many


def test_fields_that_mysql_would_cut_off_are_refused() -> None:
    """In a lax mode it cuts a text at 64 KiB, and says nothing."""
    fits, over = ({"a": "\x03" * count} for count in (10_000, 11_000))  # six letters of JSON each
    for family in SqlFamily:
        kept.insert_rows(family, [Message("T", b"x", properties=fits)], bundle="B", now_ms=0)
    kept.insert_rows(LITE, [Message("T", b"x", properties=over)], bundle="B", now_ms=0)
    with pytest.raises(UsageError, match=r"take 66023 bytes .* 65535 are allowed"):
        kept.insert_rows(
            SqlFamily.MYSQL, [Message("T", b"x", properties=over)], bundle="B", now_ms=0
        )


def test_a_page_begins_behind_a_position_and_leaves_topics_out(
    database: sqlite3.Connection,
) -> None:
    keep(database, "A", Message("T", b"1"))
    keep(database, "B", Message("U", b"2"), Message("T", b"3"))
    keep(database, "C", Message("V", b"4"))
    assert [row.position for row in page(database, 1)] == [2, 3, 4]
    found = page(database, without={"T"})
    assert [row.position for row in found] == [2, 4]
    # The bundle of which one topic is left out is not whole, and what follows waits for it.
    assert kept.group_by_bundle(found) == []
    assert [bundle[0].bundle for bundle in kept.group_by_bundle(found[1:])] == ["C"]


def test_as_many_bundles_go_together_as_fit_and_one_at_the_least(
    database: sqlite3.Connection,
) -> None:
    third = kept.RELAYED_SIZE_MAX // 3
    keep(database, "A", Message("T", bytes(third)), Message("T", bytes(third)))
    keep(database, "B", Message("T", bytes(third)))
    keep(database, "C", Message("T", bytes(kept.RELAYED_SIZE_MAX + 1)))
    bundles = kept.group_by_bundle(page(database))
    assert [bundle[0].bundle for bundle in kept.first_fitting_bundles(bundles)] == ["A", "B"]
    assert kept.first_fitting_bundles(bundles[2:]) == bundles[2:]
    assert kept.first_fitting_bundles([]) == []


def test_the_status_counts_messages_and_bytes(database: sqlite3.Connection) -> None:
    nothing = kept.parse_status(rows(database, kept.select_status(LITE)))
    assert (nothing.count, nothing.size, nothing.oldest_ms) == (0, 0, 0)
    assert rows(database, kept.select_oldest()) == []
    keep(database, "A", Message("T", b"123"), Message("T", b"4567"))
    database.execute("update escrowmq_kept set made_ms = made_ms - 60000")
    found = kept.parse_status(rows(database, kept.select_status(LITE)))
    assert (found.count, found.size) == (2, 7)
    assert 60_000 <= found.oldest_ms < 90_000
    assert rows(database, kept.select_oldest()) == [(1,)]
