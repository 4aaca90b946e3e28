"""What an outbox hears of an engine's transactions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy")

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.exc import IntegrityError

from escrowmq.client.core.message import Message
from escrowmq.errors import NoNameServer
from escrowmq.integrations.outbox import schema
from escrowmq.integrations.outbox.hand_over import HandOver
from escrowmq.integrations.outbox_base import new_database_name
from escrowmq.integrations.sqlalchemy.hooks import ConnectionHooks

MESSAGE = Message("T", b"m")


class Sent:
    """Messages on their way, and what was done with them."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self.key = f"{len(brokers.sent):032X}"
        self.told: list[str] = []

    @property
    def broker_names(self) -> set[str]:
        return {"broker-a"}

    def abandon(self) -> None:
        self.told.append("abandon")

    def validate(self, messages: Sequence[Message]) -> None:
        self.told.append("check")

    def start_storing(self, messages: Sequence[Message]) -> None:
        self.told.append("send")

    def wait_until_stored(self) -> None:
        if self._brokers.are_away:
            raise NoNameServer("planted")

    def leave_to_marker(self) -> None:
        self.told.append("leave")

    def report_commit(self) -> None:
        self.told.append("commit")


class Brokers:
    """Where messages go."""

    def __init__(self) -> None:
        self.are_away = False
        self.sent: list[Sent] = []

    def begin(self, database: str) -> Sent:
        self.sent.append(Sent(self))
        return self.sent[-1]


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{tmp_path}/shop.db")
    yield engine
    engine.dispose()


@pytest.fixture
def hooks(engine: Engine, brokers: Brokers) -> ConnectionHooks:
    hooks = ConnectionHooks(engine, HandOver(brokers.begin, new_name=new_database_name))
    with engine.begin() as connection:
        for statement in schema.create_statements(hooks.family):
            connection.exec_driver_sql(statement.text)
        connection.exec_driver_sql("create table customers (id text primary key)")
        connection.exec_driver_sql(
            "create table orders (id text, customer text references customers "
            "deferrable initially deferred)"
        )
    return hooks


def order(connection: Connection, name: str, customer: str | None = None) -> None:
    connection.exec_driver_sql("insert into orders values (?, ?)", (name, customer))


def sell(connection: Connection, hooks: ConnectionHooks, *, customer: str | None = None) -> None:
    with connection.begin():
        order(connection, "first", customer)
        hooks.add_message(connection, MESSAGE)


def test_a_transaction_whose_messages_could_not_be_sent_is_rolled_back(
    engine: Engine, hooks: ConnectionHooks, brokers: Brokers
) -> None:
    """Its changes and its marker stood in the driver's transaction, and the next one committed
    them: an order without its message, whose marker said that it was sent."""
    with engine.connect() as connection:
        brokers.are_away = True
        with pytest.raises(NoNameServer):
            sell(connection, hooks)
        with connection.begin():
            order(connection, "second")
        names = connection.exec_driver_sql("select id from orders").scalars().all()
        assert names == ["second"]
        markers = connection.exec_driver_sql("select says from escrowmq_markers").scalars().all()
        assert "commit" not in markers


def test_messages_of_a_commit_that_the_database_refused_are_not_told_of_the_next_one(
    engine: Engine, hooks: ConnectionHooks, brokers: Brokers
) -> None:
    """The brokers were told to commit them, and no check would have been asked."""
    with engine.connect() as connection:
        connection.exec_driver_sql("pragma foreign_keys = on")
        connection.commit()
        with pytest.raises(IntegrityError):
            sell(connection, hooks, customer="nobody")
        engine.dialect.do_rollback(connection.connection)  # as other databases do themselves
        with connection.begin():
            order(connection, "second")
        hooks.report_commit(connection)
        assert [each.told for each in brokers.sent] == [["send", "leave"]]
