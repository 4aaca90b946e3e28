"""`when_away="keep"`: messages that no broker will ever accept."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import escrowmq
from escrowmq.errors import InvalidMessage, MarkerNotWritten
from escrowmq.integrations import dbapi
from escrowmq.integrations.dbapi.addresses import make_connector
from escrowmq.integrations.dbapi.drivers import PLAIN, execute_on, find_driver
from escrowmq.integrations.outbox import kept
from escrowmq.integrations.sqlalchemy import AsyncOutbox, Outbox
from escrowmq.testing import Broker
from tests.interop.process import until

from .conftest import Place
from .test_check_from_db import address_of

NEVER = {
    "a body over the limit": escrowmq.Message("T", b"x" * 1_000),
    "a letter that the protocol reserves": escrowmq.Message("T", b"x", properties={"a": "b\x01"}),
    "too many bytes of properties": escrowmq.Message("T", b"x", properties={"a": "x" * 40_000}),
}
SETTINGS = {"group": "shop", "topics": ["T", "U"], "timeout_ms": 300, "body_size_max": 999}


@pytest.fixture
def producer(escrowmq_broker: Broker) -> Iterator[escrowmq.Producer]:
    with escrowmq.Producer(**SETTINGS) as made:  # type: ignore[arg-type]
        yield made


@pytest.mark.parametrize("message", NEVER.values(), ids=NEVER)
@pytest.mark.parametrize("is_known", [False, True])
def test_a_message_that_no_broker_would_take_is_not_kept(
    escrowmq_broker: Broker,
    producer: escrowmq.Producer,
    place: Place,
    message: escrowmq.Message,
    *,
    is_known: bool,
) -> None:
    """It was committed, and then blocked its topic for ever."""
    connect = make_connector(address_of(place))
    outbox = dbapi.Outbox(producer, connect, when_away="keep")
    outbox.create_tables()
    escrowmq_broker.stop()
    connection = connect()
    if is_known:
        with outbox.transaction(connection) as tx:
            tx.send("T", b"good")
    with pytest.raises(InvalidMessage), outbox.transaction(connection) as tx:
        tx.send(message)
    connection.close()
    assert outbox.kept().count == int(is_known)
    outbox.close()


def test_nor_with_sessions(
    escrowmq_broker: Broker, producer: escrowmq.Producer, place: Place
) -> None:
    engine = sa.create_engine(place.url)
    outbox = Outbox(producer, engine, when_away="keep")
    outbox.create_tables()
    escrowmq_broker.stop()
    for message in NEVER.values():
        with pytest.raises(InvalidMessage), Session(engine) as session:
            with outbox.transaction(session) as tx:
                tx.send(message)
    assert outbox.kept().count == 0
    outbox.close()
    engine.dispose()


def test_bodies_are_not_shown_where_they_cannot_be_kept(
    escrowmq_broker: Broker, producer: escrowmq.Producer, place: Place
) -> None:
    """SQLAlchemy's errors have the values of their statement."""
    engine = sa.create_engine(place.url)
    outbox = Outbox(producer, engine, when_away="keep")
    outbox.create_tables()
    with engine.begin() as connection:
        connection.exec_driver_sql("drop table escrowmq_kept")
        connection.exec_driver_sql("create table escrowmq_kept (position int)")
    escrowmq_broker.stop()
    with pytest.raises(MarkerNotWritten) as raised, Session(engine) as session:
        with outbox.transaction(session) as tx:
            tx.send("T", b"4111 1111", properties={"token": "s3cret"})
    text = "".join(traceback.format_exception(raised.value))
    assert "4111" not in text
    assert "s3cret" not in text
    outbox.close()
    engine.dispose()


def test_as_many_bytes_as_are_allowed_are_kept(escrowmq_broker: Broker, place: Place) -> None:
    """MariaDB refused them in one statement."""
    connect = make_connector(address_of(place))
    with escrowmq.Producer(group="shop", topics=["T"], timeout_ms=300) as producer:
        outbox = dbapi.Outbox(producer, connect, when_away="keep")
        outbox.create_tables()
        escrowmq_broker.stop()
        connection = connect()
        with outbox.transaction(connection) as tx:
            for _ in range(4):
                tx.send("T", bytes(4_000_000))
        connection.close()
        assert outbox.kept().size == 16_000_000
        outbox.close()


def test_nor_with_those_that_are_awaited(escrowmq_broker: Broker, place: Place) -> None:
    if not place.async_url:
        pytest.skip("SQLAlchemy's asyncio for this database needs another driver")

    async def go() -> None:
        engine = create_async_engine(place.async_url)
        async with escrowmq.aio.Producer(**SETTINGS) as producer:  # type: ignore[arg-type]
            outbox = AsyncOutbox(producer, engine, when_away="keep")
            await outbox.create_tables()
            await asyncio.to_thread(escrowmq_broker.stop)
            for message in NEVER.values():
                with pytest.raises(InvalidMessage):
                    async with AsyncSession(engine) as session, outbox.transaction(session) as tx:
                        await tx.send(message)
            assert (await outbox.kept()).count == 0
            outbox.close()
        await engine.dispose()

    asyncio.run(go())


def test_a_kept_message_that_is_refused_holds_up_its_topic_alone(
    escrowmq_broker: Broker, producer: escrowmq.Producer, place: Place
) -> None:
    """Every transaction was kept, until kept_max stopped them all."""
    connect = make_connector(address_of(place))
    dbapi.Outbox(producer, connect).create_tables()
    connection = connect()
    _, driver = find_driver(connection, PLAIN)
    over = [escrowmq.Message("T", b"x" * 1_000)]
    for statement in kept.insert_rows(driver.family, over, bundle="b", now_ms=0):
        execute_on(connection, driver, statement)
    connection.commit()
    outbox = dbapi.Outbox(producer, connect, when_away="keep", kept_max=5)
    circuit = outbox._circuit
    assert circuit is not None
    until("the refusal is known", lambda: circuit.refused == {"T"})
    for number in range(10):
        with outbox.transaction(connection) as tx:
            tx.send("U", b"%d" % number)
    assert outbox.kept().count == 1
    with outbox.transaction(connection) as tx:
        tx.send("T", b"waits")
    assert outbox.kept().count == 2
    connection.cursor().execute("delete from escrowmq_kept where bundle = 'b'")
    connection.commit()
    until("what waited", lambda: escrowmq_broker.delivered("T") == [b"waits"])
    producer.flush()
    assert escrowmq_broker.delivered("U") == [b"%d" % number for number in range(10)]
    connection.close()
    outbox.close()
