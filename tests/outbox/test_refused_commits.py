"""A COMMIT that the database refuses, for a constraint that it checks only then: its message stays
away, whatever the program commits next."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import escrowmq
from escrowmq.integrations.sqlalchemy import AsyncOutbox, Outbox
from escrowmq.testing import Broker

from .conftest import Place

CUSTOMERS = "create table customers (id varchar(40) primary key)"
ORDERS = (
    "create table orders (id varchar(40) primary key, customer varchar(40) "
    "references customers deferrable initially deferred)"
)
REFUSED = sa.text("insert into orders values ('ghost', 'nobody')")
TAKEN = sa.text("insert into orders values ('good', null)")


@pytest.fixture
def place(new_place: Callable[[str], Place]) -> Place:
    """PostgreSQL's: MariaDB has no such constraints, and SQLite leaves the transaction open."""
    return new_place("postgresql")


@pytest.fixture
def engine(place: Place) -> Iterator[sa.Engine]:
    made = sa.create_engine(place.url)
    with made.begin() as connection:
        connection.exec_driver_sql(CUSTOMERS)
        connection.exec_driver_sql(ORDERS)
    yield made
    made.dispose()


@pytest.fixture
def outbox(escrowmq_broker: Broker, engine: sa.Engine) -> Iterator[Outbox]:
    with escrowmq.Producer(group="shop", topics=["T"]) as producer:
        made = Outbox(producer, engine)
        made.create_tables()
        yield made


def delivered(broker: Broker) -> list[bytes]:
    """What the topic has once no outcome is open."""
    broker.check_now()
    return broker.delivered("T")


def refuse(outbox: Outbox, session: Session) -> None:
    session.execute(REFUSED)
    outbox.send(session, "T", b"ghost")
    with pytest.raises(IntegrityError):
        session.commit()
    session.rollback()


def test_the_next_commit_of_the_session_says_nothing_of_it(
    escrowmq_broker: Broker, engine: sa.Engine, outbox: Outbox
) -> None:
    with Session(engine) as session:
        refuse(outbox, session)
        session.execute(TAKEN)
        session.commit()
    assert delivered(escrowmq_broker) == []


def test_nor_does_one_of_a_savepoint_or_one_that_commits_nothing(
    escrowmq_broker: Broker, engine: sa.Engine, outbox: Outbox
) -> None:
    with Session(engine) as session:
        refuse(outbox, session)
        session.commit()
        with session.begin_nested():
            session.execute(TAKEN)
        session.rollback()
    with engine.connect() as connection, Session(connection) as session:
        refuse(outbox, session)
        session.commit()
    assert delivered(escrowmq_broker) == []


def test_nor_does_a_session_that_has_joined_the_next_transaction(
    escrowmq_broker: Broker, engine: sa.Engine, outbox: Outbox
) -> None:
    with engine.connect() as connection:
        for statement, body in ((REFUSED, b"ghost"), (TAKEN, b"good")):
            with (
                contextlib.suppress(IntegrityError),
                connection.begin(),
                Session(connection) as session,
            ):
                session.execute(statement)
                outbox.send(session, "T", body)
                session.commit()  # joined: it is the block of the connection that commits
    assert delivered(escrowmq_broker) == [b"good"]


def test_nor_does_a_block_in_which_the_program_caught_the_refusal(
    escrowmq_broker: Broker, engine: sa.Engine, outbox: Outbox
) -> None:
    with engine.connect() as connection, outbox.transaction(connection) as tx:
        connection.execute(REFUSED)
        tx.send("T", b"ghost")
        with pytest.raises(IntegrityError):
            connection.commit()
        connection.rollback()
    assert delivered(escrowmq_broker) == []


def test_a_listener_that_refuses_the_commit_is_no_commit(
    escrowmq_broker: Broker, engine: sa.Engine, outbox: Outbox
) -> None:
    is_refusing = True

    def refuse_all(connection: sa.Connection) -> None:
        if is_refusing:
            raise PermissionError("planted")

    sa.event.listen(engine, "commit", refuse_all)  # behind the outbox's own
    with engine.connect() as connection, Session(connection) as session:
        session.execute(TAKEN)
        outbox.send(session, "T", b"ghost")
        with pytest.raises(PermissionError):
            session.commit()
        session.rollback()
        connection.connection.rollback()  # which SQLAlchemy leaves out then
        is_refusing = False
        session.commit()
    assert delivered(escrowmq_broker) == []


def test_a_prepared_transaction_is_reported_when_it_has_committed(
    escrowmq_broker: Broker, engine: sa.Engine, outbox: Outbox
) -> None:
    with Session(engine, twophase=True) as session:
        session.execute(TAKEN)
        outbox.send(session, "T", b"good")
        session.commit()
        assert escrowmq_broker.wait_delivered("T") == [b"good"]
    with engine.connect() as connection:
        with connection.begin_twophase() as prepared:
            with Session(connection) as session:
                outbox.send(session, "T", b"undecided")
                prepared.prepare()
                session.commit()
            prepared.rollback()
    assert delivered(escrowmq_broker) == [b"good"]


def test_the_same_holds_for_asyncio(
    escrowmq_broker: Broker, place: Place, engine: sa.Engine
) -> None:
    async def work() -> None:
        awaited = create_async_engine(place.async_url)
        async with escrowmq.aio.Producer(group="awaited", topics=["T"]) as producer:
            outbox = AsyncOutbox(producer, awaited)
            await outbox.create_tables()
            async with AsyncSession(awaited) as session:
                await session.execute(REFUSED)
                await outbox.send(session, "T", b"ghost")
                with pytest.raises(IntegrityError):
                    await session.commit()
                await session.rollback()
                await session.execute(TAKEN)
                await session.commit()
            async with awaited.connect() as connection, outbox.transaction(connection) as tx:
                await connection.execute(REFUSED)
                await tx.send("T", b"ghost")
                with pytest.raises(IntegrityError):
                    await connection.commit()
                await connection.rollback()
            await producer.flush()
        await awaited.dispose()

    asyncio.run(work())
    assert delivered(escrowmq_broker) == []
