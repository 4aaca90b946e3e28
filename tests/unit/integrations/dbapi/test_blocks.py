from __future__ import annotations

from types import SimpleNamespace

import pytest

from escrowmq.client.core.message import Message
from escrowmq.errors import UsageError
from escrowmq.integrations.dbapi import blocks
from escrowmq.integrations.outbox import unsent_messages
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
    end = blocks.forbid_ending(connection)
    for refused in (connection.commit, connection.rollback):
        with pytest.raises(UsageError, match="do neither inside it"):
            refused()
    end()
    end()
    connection.commit()
    assert connection.ends == ["commit"]
    blocks.forbid_ending(InC())()


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


def run_all(unsent: UnsentMessages, *queries: str) -> None:
    hear = blocks.SavepointListener(unsent)
    for query in queries:
        hear(SimpleNamespace(query=query, exception=None))


def test_names_are_those_that_sql_would_see() -> None:
    unsent = UnsentMessages()
    unsent.add(Message("T", b"1"))
    run_all(unsent, 'savepoint "one"', "savepoint two$2", 'savepoint "a ""b"""')
    unsent.add(Message("T", b"2"))
    run_all(unsent, "rollback to TWO$2", "rollback to ONE")
    assert [each.body for each in unsent.messages] == [b"1"]
    unsent.check_tracked()


def test_savepoints_that_asyncpg_rolls_back_are_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It releases none of them. Behind the bound all messages were forgotten."""
    monkeypatch.setattr(unsent_messages, "SAVEPOINTS_MAX", 2)
    unsent = UnsentMessages()
    unsent.add(Message("T", b"1"))
    for number in range(4):
        name = f"__asyncpg_savepoint_{number}__"
        run_all(unsent, f"SAVEPOINT {name};", f"ROLLBACK TO {name};")
    unsent.check_tracked()
    assert len(unsent.messages) == 1
    run_all(unsent, "savepoint a", "savepoint a", "savepoint a", "rollback to a")
    with pytest.raises(UsageError, match="at most 2 open savepoints, and 'a' is one more"):
        unsent.check_tracked()
    assert len(unsent.messages) == 1


def test_texts_name_what_to_use_instead() -> None:
    assert "raise in it to roll back" in str(blocks.ended_inside_error())
    assert "in the place of connection.transaction()" in str(blocks.owned_by_another_error())
    assert not blocks.is_nested_psycopg(object())
    error = ValueError("x")
    assert blocks.exit_arguments(error)[:2] == (ValueError, error)
