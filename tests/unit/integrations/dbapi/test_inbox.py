"""Messages that are handled once, with SQLite."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from escrowmq.client.blocking.delivery import Delivery as PlainDelivery
from escrowmq.client.delivery import Delivery, DeliveryState, HeldMessage
from escrowmq.errors import UsageError
from escrowmq.integrations.dbapi.inbox import consume_once
from escrowmq.integrations.outbox import schema
from escrowmq.integrations.outbox.tables import SqlFamily

Connect = Callable[[], sqlite3.Connection]


@pytest.fixture
def connect(tmp_path: Path) -> Connect:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "shop.db")

    connection = connect()
    for statement in schema.create_statements(SqlFamily.SQLITE):
        connection.execute(statement.text)
    connection.close()
    return connect


class Desk:
    """Notes what is decided, and what stands in the database by then."""

    user_group = "g"
    is_broadcasting = False

    def __init__(self) -> None:
        self.decided: list[tuple[str, int | None]] = []

    async def settle(self, message: HeldMessage, level: int | None) -> None:
        assert message.delivery_state is not None
        message.delivery_state.is_settled, message.delivery_state.level = True, level
        self.decided.append((message.message_id, level))

    async def settle_batch(self, batch: list[HeldMessage], level: int | None) -> None:
        raise NotImplementedError


class Portal:
    def call(self, work: Any) -> Any:
        return asyncio.run(work)


def delivered(message_id: str, desk: Desk | None = None) -> PlainDelivery:
    ticket = DeliveryState(desk or Desk(), "a queue")
    return PlainDelivery("T", b"", message_id=message_id, delivery_state=ticket, portal=Portal())


def test_a_message_that_its_handler_gives_back_reaches_it_again(connect: Connect) -> None:
    """A note would make the next delivery, or a dead letter sent again, pass it over."""
    seen: list[str] = []

    @consume_once(connect)
    def handle(messages: list[Any], connection: sqlite3.Connection) -> None:
        for message in messages:
            seen.append(message.message_id)
            if message.message_id == "later" and seen.count("later") == 1:
                message.retry(after=5)
            if message.message_id == "dead" and seen.count("dead") == 1:
                message.reject()

    for _ in range(3):
        handle([delivered(name) for name in ("one", "later", "dead")])
    assert seen == ["one", "later", "dead", "later", "dead"]


def test_nor_is_it_noted_where_connections_are_awaited(connect: Connect, tmp_path: Path) -> None:
    aiosqlite = pytest.importorskip("aiosqlite")
    seen: list[str] = []

    @consume_once(lambda: aiosqlite.connect(tmp_path / "shop.db"))
    async def handle(message: Any, connection: Any) -> None:
        seen.append(message.message_id)
        if len(seen) == 1:
            await message.retry()

    async def go() -> None:
        for _ in range(3):
            await handle(
                Delivery("T", b"", message_id="m", delivery_state=DeliveryState(Desk(), "a queue"))
            )

    asyncio.run(go())
    assert seen == ["m", "m"]


def test_a_message_whose_handler_was_given_up_stays_noted(connect: Connect) -> None:
    """The handler runs on, and its work commits; the redelivery must not do it again."""
    seen: list[str] = []

    @consume_once(connect)
    def handle(message: PlainDelivery, connection: sqlite3.Connection) -> None:
        seen.append(message.message_id)
        assert message.delivery_state is not None
        message.delivery_state.is_settled, message.delivery_state.level = True, 3  # by the consumer

    handle(delivered("slow"))
    handle(delivered("slow"))
    assert seen == ["slow"]


def test_an_acknowledgement_waits_for_the_commit(connect: Connect) -> None:
    desk = Desk()
    fails = True

    @consume_once(connect)
    def handle(message: PlainDelivery, connection: sqlite3.Connection) -> None:
        message.ack()
        assert desk.decided == []
        with pytest.raises(UsageError, match="acknowledged before, so it cannot be rejected"):
            message.reject()
        if fails:
            raise KeyError

    message = delivered("m", desk)
    with pytest.raises(KeyError):
        handle(message)
    assert desk.decided == []
    message.retry()  # the acknowledgement went with the transaction
    assert desk.decided == [("m", 0)]

    fails = False
    desk.decided.clear()
    handle(delivered("m", desk))
    assert desk.decided == [("m", None)]
    delivered("m", desk).ack()  # outside of a transaction nothing waits
    assert desk.decided == [("m", None)] * 2


def test_work_that_nobody_would_do_is_refused_and_not_noted(connect: Connect) -> None:
    seen: list[str] = []

    async def work(message: Any, connection: Any) -> None:
        seen.append(message.message_id)

    def hidden(message: Any, connection: Any) -> Any:
        return work(message, connection)

    for _ in range(2):
        with pytest.raises(UsageError, match=r"hidden returned coroutine, .* not handled"):
            consume_once(connect)(hidden)(delivered("m"))
    with pytest.raises(UsageError, match=r"lambda.* returned generator"):
        consume_once(connect)(lambda message, connection: (n for n in "x"))(delivered("m"))

    def unfinished(message: Any, connection: Any) -> Any:
        seen.append(message.message_id)
        yield

    with pytest.raises(UsageError, match="unfinished has a yield"):
        consume_once(connect)(unfinished)
    assert seen == []


def test_an_object_that_is_called_as_a_coroutine_is_awaited(
    connect: Connect, tmp_path: Path
) -> None:
    aiosqlite = pytest.importorskip("aiosqlite")
    seen: list[str] = []

    class Work:
        async def __call__(self, message: Any, connection: Any) -> None:
            seen.append(message.message_id)

    handle = consume_once(lambda: aiosqlite.connect(tmp_path / "shop.db"))(Work())
    asyncio.run(handle(delivered("m")))
    assert seen == ["m"]
