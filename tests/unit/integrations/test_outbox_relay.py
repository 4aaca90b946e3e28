from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest

from escrowmq.client.core.message import Message
from escrowmq.errors import ConnectFailed, PermissionDenied
from escrowmq.integrations import outbox_relay
from escrowmq.integrations.outbox import kept, kept_pass, tables
from escrowmq.integrations.outbox.circuit import PAUSE_MAX_S, Circuit, CircuitState
from escrowmq.integrations.outbox.hand_over import AsyncHandOver, HandOver
from escrowmq.integrations.outbox.steps import Rows, SqlStep
from escrowmq.integrations.outbox.tables import SqlFamily
from escrowmq.integrations.outbox_relay import PassResult, run_pass, run_pass_async

from .outbox.scripted import LITE, Base


class Database(Base):
    """One whose transactions are seen."""

    family = LITE

    def __init__(self) -> None:
        super().__init__()
        self.is_open = False
        self.refused = ""
        """When a transaction fails: at its "begin" or "commit"."""
        self.put(tables.NAME_ID, "mine")

    def keep(self, *bodies: str) -> None:
        for body in bodies:
            messages = [Message("T", body.encode())]
            for statement in kept.insert_rows(LITE, messages, bundle=body, now_ms=0):
                self.execute(SqlStep(statement))

    @property
    def kept(self) -> list[str]:
        rows = self.connection.execute("select body from escrowmq_kept order by position")
        return [row[0].decode() for row in rows]

    @property
    def markers(self) -> list[str]:
        return [key for key in self.all() if tables.is_marker_key(key)]

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Callable[[SqlStep], Rows]]:
        if self.refused == "begin":
            raise sqlite3.OperationalError("planted")
        self.is_open = True
        try:
            yield self._execute_in
            if self.refused == "commit":
                raise sqlite3.OperationalError("planted")
            self.connection.commit()
        finally:
            self.connection.rollback()
            self.is_open = False

    def _execute_in(self, step: SqlStep) -> Rows:
        cursor = self.connection.execute(step.statement.text, step.statement.values)
        return cursor.fetchall() if step.is_read else [(cursor.rowcount,)]


class AsyncDatabase:
    """The same for asyncio."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find_family(self) -> SqlFamily:
        return LITE

    async def execute(self, step: SqlStep) -> Rows:
        return self._database.execute(step)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Callable[[SqlStep], Awaitable[Rows]]]:
        with self._database.transaction() as execute:

            async def execute_in(step: SqlStep) -> Rows:
                return execute(step)

            yield execute_in


class Broker:
    """Takes messages, and sees what becomes of them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.when_stored: Callable[[], object] = lambda: None
        self.attempts: list[str] = []
        """The bodies of each, with a star if the database was locked meanwhile."""
        self.ends: list[str] = []

    def marked_messages(self, name: str) -> Any:
        return Sent(self, name)

    def take(self, messages: Sequence[Message]) -> None:
        bodies = " ".join(bytes(message.body).decode() for message in messages)
        self.attempts.append(bodies + "*" * self._database.is_open)
        self.when_stored()


class Sent:
    """Messages of one transaction."""

    broker_names = ("broker-a",)

    def __init__(self, broker: Broker, name: str) -> None:
        assert name == "mine"
        self._broker = broker
        self.key = f"{len(broker.attempts):032X}"

    def start_storing(self, messages: Sequence[Message]) -> None:
        self._messages = messages

    def wait_until_stored(self) -> None:
        self._broker.take(self._messages)

    def abandon(self) -> None:
        self._broker.ends.append("abandoned")

    def leave_to_marker(self) -> None:
        self._broker.ends.append("left")

    def report_commit(self) -> None:
        self._broker.ends.append("committed")


class AwaitedSent(Sent):
    async def wait_until_stored(self) -> None:  # type: ignore[override]
        super().wait_until_stored()


@pytest.fixture
def database() -> Database:
    return Database()


@pytest.fixture
def broker(database: Database) -> Broker:
    return Broker(database)


@pytest.fixture(params=["blocking", "asyncio"])
def go(
    request: pytest.FixtureRequest, database: Database, broker: Broker
) -> Callable[[], PassResult]:
    """One pass."""
    if request.param == "blocking":
        course = HandOver(broker.marked_messages, new_name=lambda: "another")
        return lambda: run_pass(database, course, None)

    def awaited() -> PassResult:
        course: AsyncHandOver = AsyncHandOver(
            lambda name: AwaitedSent(broker, name),  # type: ignore[arg-type, return-value]
            new_name=lambda: "another",
        )
        return asyncio.run(run_pass_async(AsyncDatabase(database), course, None))

    return awaited


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_pass, "ROWS_READ_MAX", 2)


@pytest.mark.usefixtures("small_pages")
def test_nothing_is_locked_until_a_broker_has_taken_messages(
    database: Database, broker: Broker, go: Callable[[], PassResult]
) -> None:
    database.keep("1", "2", "3", "4", "5")
    found = go()
    assert (found.sent_count, found.still_kept, found.error) == (5, 0, None)
    assert broker.attempts == ["1 2", "3 4*", "5*"]
    assert broker.ends == ["left", "committed"] * 3
    assert len(database.markers) == 3
    assert database.all("escrowmq_markers")[database.markers[0]] == "commit"


def test_no_more_bodies_are_read_than_are_sent(
    database: Database,
    broker: Broker,
    go: Callable[[], PassResult],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two hundred were read, of any size, to send the first few of them, and then again."""
    monkeypatch.setattr(kept, "RELAYED_SIZE_MAX", 5)
    database.keep("one", "two", "three", "four")
    read: list[int] = []
    for name in ("execute", "_execute_in"):
        real = getattr(database, name)

        def execute(step: SqlStep, real: Any = real) -> Rows:
            rows: Rows = real(step)
            read.append(sum(isinstance(value, bytes) for row in rows for value in row))
            return rows

        monkeypatch.setattr(database, name, execute)
    assert go().sent_count == 4
    assert [each.rstrip("*") for each in broker.attempts] == ["one", "two", "three", "four"]
    assert [count for count in read if count] == [1, 1, 1, 1]


def test_a_row_that_cannot_be_read_blocks_its_own_topic_alone(
    database: Database, broker: Broker, go: Callable[[], PassResult]
) -> None:
    """It ended each pass, as if the database were unreachable."""
    database.keep("1", "2", "3")
    database.connection.execute(
        """update escrowmq_kept set fields = '{"flag":"x"}', topic = 'U' where position = 2"""
    )
    database.connection.commit()
    found = go()
    assert (found.sent_count, database.kept) == (2, ["2"])
    assert broker.attempts == ["1", "3"]
    assert (found.has_failed, found.refused_topics) == (False, frozenset({"U"}))
    assert "the row 2 of escrowmq_kept cannot be read" in found.refusals[2]


def test_the_brokers_that_took_them_are_noted(
    database: Database, go: Callable[[], PassResult]
) -> None:
    database.keep("1")
    go()
    assert tables.broker_id("broker-a") in database.all()


@pytest.mark.usefixtures("small_pages")
def test_nor_after_a_failure(
    database: Database, broker: Broker, go: Callable[[], PassResult]
) -> None:
    database.keep("1", "2", "3", "4", "5")

    def fail_once() -> None:
        if broker.attempts[-1] == "3 4*":
            raise ConnectFailed("planted")

    broker.when_stored = fail_once
    found = go()
    assert broker.attempts == ["1 2", "3 4*", "3", "4", "5"]
    assert (found.sent_count, type(found.error)) == (5, ConnectFailed)


def test_what_another_process_has_sent_is_rolled_back(
    database: Database, broker: Broker, go: Callable[[], PassResult]
) -> None:
    database.keep("1", "2", "3")

    def take_first() -> None:
        if len(broker.attempts) == 1:
            with database.connection as connection:
                connection.execute("delete from escrowmq_kept where position = 1")

    broker.when_stored = take_first
    found = go()
    assert (found.sent_count, found.error) == (2, None)
    assert broker.attempts == ["1 2 3", "2 3"]
    assert broker.ends == ["abandoned", "left", "committed"]
    assert database.kept == []
    assert len(database.markers) == 1


def test_a_check_that_came_before_the_marker_has_decided(
    database: Database, broker: Broker, go: Callable[[], PassResult]
) -> None:
    database.keep("1")
    broker.when_stored = lambda: database.put(f"{0:032X}", "rollback")
    found = go()
    assert found.error is not None
    assert broker.ends == ["abandoned"]
    assert database.kept == ["1"]


def test_markers_go_into_the_table_whose_name_the_messages_carry(
    database: Database, broker: Broker, go: Callable[[], PassResult]
) -> None:
    database.keep("1")

    def restore_another() -> None:
        with database.connection as connection:
            connection.execute(
                f"update {tables.MARKERS} set says = 'other' where id = ?", (tables.NAME_ID,)
            )

    broker.when_stored = restore_another
    assert "is another than" in str(go().error)
    assert broker.ends == ["abandoned"]
    assert database.kept == ["1"]


def test_a_transaction_that_cannot_begin_gives_the_messages_back(
    database: Database, broker: Broker, go: Callable[[], PassResult]
) -> None:
    database.keep("1")
    database.refused = "begin"
    assert "planted" in str(go().error)
    assert broker.ends == ["abandoned"]
    assert database.kept == ["1"]


def test_a_commit_that_may_have_been_made_leaves_the_outcome_to_the_marker(
    database: Database, broker: Broker, go: Callable[[], PassResult]
) -> None:
    database.keep("1")
    database.refused = "commit"
    assert "planted" in str(go().error)
    assert broker.ends == ["left"]


def test_a_refusal_is_logged_loudly_and_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    circuit = Circuit()
    schedule = outbox_relay._PassSchedule(circuit)
    refused = PassResult(
        0, 1, PermissionDenied("no"), False, frozenset({"T"}), {7: "row 7 is refused"}
    )
    for _ in range(3):
        schedule.record_pass(refused)
    assert [(each.levelname, each.message) for each in caplog.records] == [
        ("ERROR", "row 7 is refused")
    ]
    assert circuit.state is CircuitState.DRAINING
    assert 0 < schedule.pause_s <= PAUSE_MAX_S
    schedule.record_pass(PassResult(1, 0, None))
    schedule.record_pass(refused)
    assert len(caplog.records) == 2
