"""A redelivery changes nothing twice."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

import escrowmq
from escrowmq.client.delivery import HeldMessage
from escrowmq.errors import MarkerNotWritten, UsageError
from escrowmq.integrations.sqlalchemy import Outbox, consume_once
from tests.interop.process import until
from tests.interop.servers import Server

from .conftest import Place
from .test_sqlalchemy import Order, engine, orders, outbox, producer

__all__ = ["engine", "outbox", "producer"]


@pytest.fixture
def sessions(engine: sa.Engine, outbox: Outbox) -> Iterator[sessionmaker[Session]]:
    return sessionmaker(engine)  # type: ignore[return-value]


def message(number: str) -> HeldMessage:
    return HeldMessage("T", b"x", message_id=number, keys=[number])


def test_a_message_is_handled_once_and_one_that_failed_again(
    engine: sa.Engine, sessions: sessionmaker[Session]
) -> None:
    fails = True

    @consume_once(sessions, group="mailer")
    def handle(message: HeldMessage, session: Session) -> None:
        session.add(Order(id=message.message_id))
        if fails:
            raise KeyError

    with pytest.raises(KeyError):
        handle(message("1"))
    assert orders(engine) == []
    fails = False
    for number in ("1", "1", "2"):
        handle(message(number))
    assert orders(engine) == ["1", "2"]
    consume_once(sessions, group="other")(lambda message, session: session.add(Order(id="3")))(
        message("1")
    )
    assert orders(engine) == ["1", "2", "3"]


def test_of_a_batch_only_the_new_ones_are_handed_over(sessions: sessionmaker[Session]) -> None:
    seen: list[list[str]] = []

    @consume_once(sessions, group="mailer")
    def handle(messages: list[HeldMessage], session: Session) -> None:
        seen.append([each.message_id for each in messages])

    handle([message("1"), message("2")])
    handle([message("2"), message("3")])
    handle([message("1"), message("3")])
    assert seen == [["1", "2"], ["3"]]


def test_a_second_delivery_meanwhile_waits_and_changes_nothing(
    engine: sa.Engine, sessions: sessionmaker[Session]
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    @consume_once(sessions, group="mailer")
    def handle(message: HeldMessage, session: Session) -> None:
        begun.set()
        go_on.wait(30)
        session.add(Order(id=message.message_id))

    threads = [threading.Thread(target=handle, args=(message("1"),)) for _ in range(2)]
    threads[0].start()
    begun.wait(30)
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert orders(engine) == ["1"]


def test_work_behind_a_rollback_is_not_committed_without_its_record(
    engine: sa.Engine, sessions: sessionmaker[Session]
) -> None:
    """A redelivery that has waited for the record writes one of its own as soon as a deadlock has
    taken the first one away: so it proves nothing that there is one."""

    @consume_once(sessions, group="mailer")
    def handle(message: HeldMessage, session: Session) -> None:
        if message.body == b"first":
            session.execute(sa.text("rollback"))
            handle(HeldMessage("T", b"redelivered", message_id="1"))
        session.add(Order(id=message.body.decode()))

    with pytest.raises(MarkerNotWritten):
        handle(HeldMessage("T", b"first", message_id="1"))
    assert orders(engine) == ["redelivered"]


def test_work_whose_transaction_has_failed_is_not_taken_for_done(
    engine: sa.Engine, sessions: sessionmaker[Session]
) -> None:
    """PostgreSQL rolled it back in silence at its COMMIT; the others commit the rest."""
    is_ended = engine.dialect.name == "postgresql"

    @consume_once(sessions, group="mailer")
    def handle(message: HeldMessage, session: Session) -> None:
        order = sa.insert(Order).values(id=message.message_id)
        session.execute(order)
        with contextlib.suppress(sa.exc.IntegrityError):
            session.execute(order)

    @consume_once(sessions, group="mailer")
    def handle_and_end(message: HeldMessage, session: Session) -> None:
        session.rollback()

    with pytest.raises(MarkerNotWritten) if is_ended else contextlib.nullcontext():
        handle(message("1"))
    assert orders(engine) == ([] if is_ended else ["1"])
    with pytest.raises(MarkerNotWritten):
        handle_and_end(message("2"))


def test_nor_is_awaited_work(engine: sa.Engine, outbox: Outbox, place: Place) -> None:
    if place.kind != "postgresql":
        pytest.skip("the others commit the rest")

    async def go() -> None:
        made = create_async_engine(place.async_url)

        @consume_once(async_sessionmaker(made), group="mailer")
        async def handle(message: HeldMessage, session: AsyncSession) -> None:
            order = sa.insert(Order).values(id=message.message_id)
            await session.execute(order)
            with contextlib.suppress(sa.exc.IntegrityError):
                await session.execute(order)

        with pytest.raises(MarkerNotWritten):
            await handle(message("1"))
        await made.dispose()

    asyncio.run(go())
    assert orders(engine) == []


@pytest.mark.parametrize("is_set_by_driver", [False, True])
def test_a_connection_that_commits_by_itself_is_refused_before_the_record(
    engine: sa.Engine, outbox: Outbox, *, is_set_by_driver: bool
) -> None:
    """The record was committed before the work: if that failed, its redelivery was skipped."""
    options: dict[str, Any] = {"isolation_level": "AUTOCOMMIT"}
    if is_set_by_driver:
        key = "isolation_level" if engine.dialect.name == "sqlite" else "autocommit"
        options = {"connect_args": {key: None if engine.dialect.name == "sqlite" else True}}
    alone = sa.create_engine(engine.url, **options)

    @consume_once(sessionmaker(alone), group="mailer")
    def handle(message: HeldMessage, session: Session) -> None:
        raise AssertionError("the work began")

    with pytest.raises(UsageError, match="AUTOCOMMIT"):
        handle(message("1"))
    alone.dispose()
    with engine.connect() as connection:
        assert connection.scalar(sa.text("select count(*) from escrowmq_handled")) == 0


def test_an_awaited_connection_that_commits_by_itself_is_refused_too(
    engine: sa.Engine, outbox: Outbox, place: Place
) -> None:
    if not place.async_url:
        pytest.skip("SQLAlchemy's asyncio for this database needs another driver")

    async def go() -> None:
        alone = create_async_engine(place.async_url, isolation_level="AUTOCOMMIT")

        @consume_once(async_sessionmaker(alone), group="mailer")
        async def handle(message: HeldMessage, session: AsyncSession) -> None:
            raise AssertionError("the work began")

        with pytest.raises(UsageError, match="AUTOCOMMIT"):
            await handle(message("1"))
        await alone.dispose()

    asyncio.run(go())
    with engine.connect() as connection:
        assert connection.scalar(sa.text("select count(*) from escrowmq_handled")) == 0


def test_a_session_of_the_wrong_kind_is_refused(sessions: sessionmaker[Session]) -> None:
    asynchronous = async_sessionmaker(create_async_engine("sqlite+aiosqlite:///x.db"))
    with pytest.raises((UsageError, TypeError)):
        consume_once(asynchronous, group="g")(lambda message, session: None)(message("1"))


def test_coroutines_and_real_deliveries(
    server: Server, topic: str, group: str, engine: sa.Engine, place: Place, outbox: Outbox
) -> None:
    if not place.async_url:
        pytest.skip("SQLAlchemy's asyncio for this database needs another driver")
    attempts: list[str] = []

    async def go() -> None:
        sessions = async_sessionmaker(create_async_engine(place.async_url))

        @consume_once(sessions, key=lambda message: message.key_list[0])
        async def handle(message: Any, session: AsyncSession) -> None:
            attempts.append(message.message_id)
            session.add(Order(id=message.key_list[0]))

        async with (
            escrowmq.aio.Producer(server.nameserver, group=group) as sender,
            escrowmq.aio.Consumer(server.nameserver, group=group, topic=topic, handler=handle),
        ):
            for _ in range(3):
                await sender.send(topic, b"x", keys=["o-1"])
            await sender.send(topic, b"x", keys=["o-2"])
            await asyncio.to_thread(until, "both", lambda: orders(engine) == ["o-1", "o-2"])
        await sessions.kw["bind"].dispose()

    asyncio.run(go())
    assert len(attempts) == 2


def test_what_was_handled_is_forgotten_in_time(
    engine: sa.Engine, sessions: sessionmaker[Session], outbox: Outbox
) -> None:

    handle = consume_once(sessions, group="g")(lambda message, session: None)
    for number in range(5):
        handle(message(str(number)))
    assert outbox.forget_handled() == 0
    with engine.begin() as connection:
        connection.execute(sa.text("update escrowmq_handled set made_ms = made_ms - 864000000"))
    assert outbox.forget_handled(keep=dt.timedelta(days=9)) == 5
