from __future__ import annotations

from types import SimpleNamespace

import pytest

from escrowmq.client.core.message import Message
from escrowmq.errors import UsageError
from escrowmq.integrations.dbapi import blocks
from escrowmq.integrations.outbox.unsent_messages import UnsentMessages


class Connection:
    """One whose methods can be replaced."""

    def __init__(self) -> None:
        self.ends: list[str] = []

    def commit(self) -> None:
        self.ends.append("commit")

    def rollback(self) -> None:
        self.ends.append("rollback")


class InC:
    """One whose methods cannot."""

    __slots__ = ()


def test_a_guarded_connection_neither_commits_nor_rolls_back() -> None:
    connection = Connection()
    end = blocks.guard(connection)
    for refused in (connection.commit, connection.rollback):
        with pytest.raises(UsageError, match="do neither inside it"):
            refused()
    end()
    end()
    connection.commit()
    assert connection.ends == ["commit"]
    blocks.guard(InC())()


def test_what_a_savepoint_of_sql_takes_back_is_not_sent() -> None:
    unsent = UnsentMessages()
    hear = blocks.SavepointListener(unsent)

    def run(query: str, exception: Exception | None = None) -> None:
        hear(SimpleNamespace(query=query, exception=exception))

    def send(body: bytes) -> None:
        unsent.add(Message("T", body))

    send(b"1")
    run("SAVEPOINT One;")
    send(b"2")
    run("rollback to one", ValueError("it failed"))
    run("select '; rollback to one'")
    run('savepoint "One"')
    send(b"3")
    run('ROLLBACK WORK TO SAVEPOINT "One"')
    assert [each.body for each in unsent.messages] == [b"1", b"2"]
    run(" release savepoint one ;")
    run("savepoint two")
    send(b"4")
    run("rollback transaction to two")
    assert [each.body for each in unsent.messages] == [b"1", b"2"]


def test_texts_name_what_to_use_instead() -> None:
    assert "raise in it to roll back" in str(blocks.ended_inside())
    assert "in the place of connection.transaction()" in str(blocks.owned_by_another())
    assert not blocks.is_nested_psycopg(object())
    error = ValueError("x")
    assert blocks.raised(error)[:2] == (ValueError, error)
