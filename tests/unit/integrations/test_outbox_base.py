"""Against SQLite in memory, and a producer that only listens."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, cast

import pytest

from escrowmq.client.checking import NoMarkerFound
from escrowmq.client.core.message import ReceivedMessage
from escrowmq.client.core.sending import Outcome
from escrowmq.client.producer import Producer
from escrowmq.client.unsettled_transactions import UnsettledTransactions
from escrowmq.codec.hashes import account_mark
from escrowmq.errors import ClientClosed, RouteMissing
from escrowmq.integrations import outbox_base
from escrowmq.integrations.outbox import tables
from escrowmq.integrations.outbox.circuit import Circuit
from escrowmq.integrations.outbox.known_brokers import KnownBrokers
from escrowmq.integrations.outbox.steps import Rows, SqlStep, StepFailed
from escrowmq.integrations.outbox.tables import SqlFamily
from escrowmq.integrations.outbox_base import AsyncOutboxBase, OutboxBase
from escrowmq.integrations.outbox_relay import PassResult

from .outbox.scripted import LITE, Base

KEY = "0A" * 16


class Database(Base):
    family = LITE

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Callable[[SqlStep], Rows]]:
        yield self.execute


class AsyncDatabase:
    """The same, awaited."""

    def __init__(self, base: Base) -> None:
        self._base = base

    async def find_family(self) -> SqlFamily:
        return LITE

    async def execute(self, step: SqlStep) -> Rows:
        return self._base.execute(step)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Callable[[SqlStep], Awaitable[Rows]]]:
        yield self.execute


class Listener:
    """What stands for a producer: who answers its checks, and what brokers may ask for."""

    account = "shop"

    def __init__(self) -> None:
        self.checks: list[Any] = []
        self.brokers = {"broker-a": 0}

    def add_database_check(self, check: Any, *, on_close: Callable[[], None]) -> None:
        self.checks.append(check)

    def marked_messages(self, database: str) -> Any:
        raise NotImplementedError

    def remove_database_check(self, check: Any) -> None:
        self.checks.remove(check)

    def unsettled(self) -> UnsettledTransactions:
        return UnsettledTransactions({KEY}, self.brokers)


class AwaitedListener(Listener):
    async def unsettled(self) -> UnsettledTransactions:  # type: ignore[override]
        return super().unsettled()


def asked(database: str, *, owner: str = "") -> ReceivedMessage:
    properties = {"escrowOwner": account_mark(owner)} if owner else {}
    system = {"escrowMarker": f"{database}:{KEY}"}
    return ReceivedMessage("T", b"x", system=system, properties=properties)


def test_a_keeper_answers_makes_and_forgets() -> None:
    base, listener = Database(), Listener()
    keeper = OutboxBase(cast("Any", listener), base)
    keeper.create_tables()
    name = keeper.find_name()
    assert name
    (check,) = listener.checks
    assert check(asked(name)) is Outcome.ROLLBACK
    assert check(asked("other")) == NoMarkerFound(name)
    assert keeper.forget_markers() == 0
    with base.connection:
        base.connection.execute("update escrowmq_markers set made_ms = 0")
    base.put("broker:broker-b", "broker-b")
    with pytest.raises(RouteMissing, match="no answer from broker-b"):
        keeper.forget_markers()
    known = KnownBrokers(lambda: 0)
    known.add("broker-b")
    assert keeper.forget_markers(gone=["broker-b"]) == 0
    assert known.names_to_look_up(["broker-b"]) == ["broker-b"]
    assert keeper.forget_markers() == 0, "a broker may ask for it"
    assert keeper.forget_handled(keep=dt.timedelta(0)) == 0
    base.failing.append("select")
    assert "planted" in check(asked(name)).error
    with pytest.raises(StepFailed):
        keeper.find_name()
    keeper.close()
    assert listener.checks == []


def test_halves_of_another_account_leave_no_rows() -> None:
    """Who may name somebody's group could let his table grow."""
    base, listener = Database(), Listener()
    OutboxBase(cast("Any", listener), base)
    base.put(tables.NAME_ID, "shop")
    (check,) = listener.checks
    assert check(asked("shop", owner="mallory")) is Outcome.UNKNOWN
    assert base.all() == {tables.NAME_ID: "shop"}
    assert check(asked("shop", owner="shop")) is Outcome.ROLLBACK
    assert base.all() == {tables.NAME_ID: "shop", KEY: "rollback"}


def test_checks_ask_for_the_databases_name_once() -> None:
    """It never changes, and was asked for with each check that a process answered."""
    base, listener = Database(), Listener()
    OutboxBase(cast("Any", listener), base)
    base.put(tables.NAME_ID, "shop")
    base.put(KEY, "commit")
    (check,) = listener.checks
    found = [check(asked("shop")) for _ in range(3)]
    assert found == [Outcome.COMMIT] * 3
    assert base.steps == ["select"] * 4


def test_checks_that_are_awaited_ask_for_it_once_too() -> None:
    async def go() -> None:
        base, listener = Base(), AwaitedListener()
        AsyncOutboxBase(cast("Any", listener), AsyncDatabase(base))
        base.put(tables.NAME_ID, "shop")
        base.put(KEY, "commit")
        (check,) = listener.checks
        found = [await check(asked("shop")) for _ in range(3)]
        assert found == [Outcome.COMMIT] * 3
        assert base.steps == ["select"] * 4

    asyncio.run(go())


def test_one_that_is_awaited_does_the_same() -> None:
    async def go() -> None:
        base, listener = Base(), AwaitedListener()
        database = AsyncDatabase(base)
        keeper = AsyncOutboxBase(cast("Any", listener), database)
        await keeper.create_tables()
        name = await keeper.find_name()
        assert name
        (check,) = listener.checks
        assert await check(asked(name)) is Outcome.ROLLBACK
        assert await check(asked("other")) == NoMarkerFound(name)
        assert await keeper.forget_markers() == 0
        assert await keeper.forget_handled(keep=dt.timedelta(0)) == 0
        base.failing.append("select")
        assert "planted" in (await check(asked(name))).error
        keeper.close()
        assert listener.checks == []

    asyncio.run(go())


@pytest.mark.parametrize("kind", [OutboxBase, AsyncOutboxBase])
def test_kept_messages_are_stored_without_repeats(kind: Any) -> None:
    """A repeat may store a message twice, and the marker then commits both."""

    class MarkedMessages:
        name = ""

        def without_resends(self) -> MarkedMessages:
            self.name += " once"
            return self

    class Maker(Listener):
        def marked_messages(self, database: str) -> MarkedMessages:
            made = MarkedMessages()
            made.name = database
            return made

    keeper = kind(cast("Any", Maker()), Database())
    assert keeper._relaying._begin("db").name == "db once"


class Refusing(Listener):
    """A producer that is closed."""

    def add_database_check(self, check: Any, *, on_close: Callable[[], None]) -> None:
        raise ClientClosed("planted")


def relay_threads() -> int:
    return sum(each.name == "escrowmq-outbox" for each in threading.enumerate())


def test_an_outbox_that_cannot_be_made_leaves_no_relay_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = relay_threads()
    with pytest.raises(ClientClosed):
        OutboxBase(cast("Any", Refusing()), Database(), Circuit())
    assert relay_threads() == before

    def no_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    listener = Listener()
    monkeypatch.setattr(outbox_base, "Relay", no_thread)
    with pytest.raises(RuntimeError):
        OutboxBase(cast("Any", listener), Database(), Circuit())
    assert listener.checks == []


def test_a_producer_that_is_closed_meanwhile_ends_the_relay() -> None:
    class Closing(Listener):
        def add_database_check(self, check: Any, *, on_close: Callable[[], None]) -> None:
            on_close()

    keeper = OutboxBase(cast("Any", Closing()), Database(), Circuit())
    assert keeper._relay is not None
    assert keeper._relay._is_closed
    keeper._relay.close()


def test_one_that_was_made_before_its_loop_looks_once_the_producer_is_opened() -> None:
    """The producer asked for a method that no outbox had, so that messages which an earlier process
    had kept were not sent before this one kept some too."""
    circuit = Circuit()
    passes = 0

    class Counting(AsyncOutboxBase):
        async def _run_pass(self) -> PassResult:
            nonlocal passes
            passes += 1
            return await super()._run_pass()

    async def go() -> None:
        for _ in range(2):
            await producer.open()
            await asyncio.sleep(0)
        assert keeper._relay_task is not None
        await producer.close()

    producer = Producer("127.0.0.1:1", group="shop")
    keeper = Counting(producer, AsyncDatabase(Base()), circuit)
    assert keeper._relay_task is None
    asyncio.run(go())
    assert passes == 1
