"""The outbox of SQLAlchemy on real databases, with a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    scoped_session,
    sessionmaker,
)

import escrowmq
from escrowmq.errors import EscrowMQError, InvalidMessage, MarkerNotWritten, UsageError
from escrowmq.integrations.outbox import unsent_messages
from escrowmq.integrations.sqlalchemy import AsyncOutbox, Outbox
from escrowmq.integrations.sqlalchemy.engine_listener import engine_listener
from escrowmq.testing import Broker
from tests.interop import servers
from tests.interop.drivers import unique
from tests.interop.servers import Server
from tests.sdk.reading import bodies, wait_bodies

from .conftest import Place


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[str] = mapped_column(sa.String(40), primary_key=True)


@pytest.fixture
def engine(place: Place) -> Iterator[sa.Engine]:
    made = sa.create_engine(place.url)
    Base.metadata.create_all(made)
    yield made
    made.dispose()


@pytest.fixture
def producer(server: Server, group: str) -> Iterator[escrowmq.Producer]:
    with escrowmq.Producer(server.nameserver, group=group) as made:
        yield made


@pytest.fixture
def outbox(producer: escrowmq.Producer, engine: sa.Engine) -> Outbox:
    made = Outbox(producer, engine)
    made.create_tables()
    return made


def orders(engine: sa.Engine) -> list[str]:
    with engine.connect() as connection:
        return sorted(connection.scalars(sa.select(Order.id)))


def test_a_block_commits_the_order_and_its_messages(
    server: Server, topic: str, engine: sa.Engine, outbox: Outbox
) -> None:
    with Session(engine) as session, outbox.transaction(session) as tx:
        session.add(Order(id="o-1"))
        tx.send(topic, b"1", keys=["o-1"])
        tx.send(topic, b"2")
        assert bodies(server, topic) == []
    wait_bodies(server, topic, [b"1", b"2"])
    assert orders(engine) == ["o-1"]


def test_a_block_that_raises_sends_nothing_and_asks_no_broker(
    server: Server, topic: str, engine: sa.Engine, outbox: Outbox, producer: escrowmq.Producer
) -> None:
    with pytest.raises(ZeroDivisionError), Session(engine) as session:
        with outbox.transaction(session) as tx:
            session.add(Order(id="o-1"))
            session.flush()
            tx.send(topic, b"never")
            1 / 0  # noqa: B018 - it raises
    assert orders(engine) == []
    assert producer.unsettled_keys() == set()
    with outbox.transaction(session) as tx:
        tx.send(topic, b"next")
    wait_bodies(server, topic, [b"next"])


def test_a_constraint_that_fails_at_the_flush_sends_nothing(
    server: Server, topic: str, engine: sa.Engine, outbox: Outbox
) -> None:
    for body in (b"first", b"second"):
        with Session(engine) as session:
            try:
                with outbox.transaction(session) as tx:
                    session.add(Order(id="same"))
                    tx.send(topic, body)
            except sa.exc.IntegrityError:
                assert body == b"second"
    wait_bodies(server, topic, [b"first"])


def test_whoever_commits_the_session_sends_its_messages(
    server: Server, topic: str, engine: sa.Engine, outbox: Outbox
) -> None:
    with Session(engine) as session:
        outbox.send(session, topic, b"lost")
        session.rollback()
        session.add(Order(id="o-1"))
        outbox.send(session, topic, b"1")
        session.commit()
        outbox.send(session, topic, b"2")
        session.commit()
        outbox.send(session, topic, b"never committed")
    wait_bodies(server, topic, [b"1", b"2"])


def test_savepoints_that_were_rolled_back_are_not_counted(
    escrowmq_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLAlchemy releases none of them: an import that skips rows failed at the 10,001st."""
    monkeypatch.setattr(unsent_messages, "SAVEPOINTS_MAX", 2)
    engine = sa.create_engine(f"sqlite:///{tmp_path}/shop.db")
    with escrowmq.Producer(group="shop", topics=["T"]) as producer:
        outbox = Outbox(producer, engine)
        outbox.create_tables()
        with Session(engine) as session, outbox.transaction(session) as tx:
            tx.send("T", b"1")
            for _ in range(4):
                session.begin_nested().rollback()
        producer.flush()
    engine.dispose()
    assert escrowmq_broker.delivered("T") == [b"1"]


def test_what_a_rolled_back_savepoint_sent_is_not_sent(
    server: Server, topic: str, engine: sa.Engine, outbox: Outbox
) -> None:
    with Session(engine) as session, outbox.transaction(session) as tx:
        with session.begin_nested() as early:
            tx.send(topic, b"never 1")
            session.add(Order(id="never 1"))
            early.rollback()
        tx.send(topic, b"1")
        with session.begin_nested():
            session.add(Order(id="2"))
            tx.send(topic, b"2")
            with pytest.raises(KeyError), session.begin_nested():
                tx.send(topic, b"never 2")
                raise KeyError
        with pytest.raises(KeyError), session.begin_nested():
            with session.begin_nested():
                tx.send(topic, b"never 3")
            raise KeyError
        tx.send(topic, b"3")
    wait_bodies(server, topic, [b"1", b"2", b"3"])
    assert orders(engine) == ["2"]


def test_a_scoped_session_stands_for_the_session_of_its_thread(
    server: Server, topic: str, engine: sa.Engine, outbox: Outbox
) -> None:
    scoped = scoped_session(sessionmaker(engine))
    with outbox.transaction(scoped) as tx:
        scoped.add(Order(id="o-1"))
        tx.send(topic, b"1")
        with pytest.raises(UsageError, match="already has an open block"):
            outbox.transaction(scoped()).__enter__()
    with pytest.raises(KeyError), outbox.transaction(scoped) as tx:
        scoped.add(Order(id="o-2"))
        tx.send(topic, b"never")
        raise KeyError
    outbox.send(scoped, topic, b"2")
    scoped.commit()
    scoped.remove()
    wait_bodies(server, topic, [b"1", b"2"])
    assert orders(engine) == ["o-1"]


def test_a_connection_without_a_session_does_the_same(
    server: Server, topic: str, engine: sa.Engine, outbox: Outbox
) -> None:
    with engine.connect() as connection:
        for body in (b"1", b"2"):
            with outbox.transaction(connection) as tx:
                connection.execute(sa.insert(Order).values(id=body.decode()))
                tx.send(topic, body)
                with connection.begin_nested() as savepoint:
                    tx.send(topic, b"never")
                    savepoint.rollback()
        with pytest.raises(KeyError), outbox.transaction(connection) as tx:
            connection.execute(sa.insert(Order).values(id="3"))
            tx.send(topic, b"3")
            raise KeyError
    wait_bodies(server, topic, [b"1", b"2"])
    assert orders(engine) == ["1", "2"]


def test_a_lost_end_is_answered_from_the_marker(
    server: Server, topic: str, engine: sa.Engine, outbox: Outbox
) -> None:
    with engine.connect() as connection:
        with connection.begin():
            connection.execute(sa.insert(Order).values(id="o-1"))
            outbox.send(connection, topic, b"1")
        # Nobody tells the broker of this commit.
        wait_bodies(server, topic, [b"1"])


def test_a_session_inside_a_transaction_of_its_connection_sends_when_that_commits(
    server: Server, topic: str, engine: sa.Engine, outbox: Outbox
) -> None:
    for body, commits in ((b"never", False), (b"1", True)):
        with engine.connect() as connection:
            outer = connection.begin()
            with Session(connection, join_transaction_mode="create_savepoint") as session:
                session.add(Order(id=body.decode()))
                outbox.send(session, topic, body)
                session.commit()
            if commits:
                outer.commit()
            else:
                outer.rollback()
    wait_bodies(server, topic, [b"1"])
    assert orders(engine) == ["1"]


def test_a_missing_table_says_what_to_do_and_nothing_is_committed(
    server: Server, topic: str, engine: sa.Engine, producer: escrowmq.Producer
) -> None:
    outbox = Outbox(producer, engine)
    with pytest.raises(MarkerNotWritten, match="create_tables"), Session(engine) as session:
        with outbox.transaction(session) as tx:
            session.add(Order(id="o-1"))
            tx.send(topic, b"1")
    assert (orders(engine), bodies(server, topic)) == ([], [])


def test_a_broker_that_takes_no_message_rolls_the_database_back(
    server: Server, engine: sa.Engine, outbox: Outbox
) -> None:
    closed = servers.new_topic(server, unique("T"), perm=4)
    with Session(engine) as session:
        for _ in range(2):
            with pytest.raises(EscrowMQError), outbox.transaction(session) as tx:
                session.add(Order(id="o-1"))
                tx.send(closed, b"1")
    assert orders(engine) == []


def test_what_cannot_be_is_refused_where_it_is_written(
    topic: str, engine: sa.Engine, outbox: Outbox, producer: escrowmq.Producer
) -> None:
    other = sa.create_engine("sqlite:///elsewhere.db")
    with Session(engine) as session:
        with outbox.transaction(session) as tx:
            with pytest.raises(InvalidMessage):
                tx.send(topic, b"")
            with pytest.raises(UsageError, match="already has an open block"):
                outbox.transaction(session).__enter__()
        with pytest.raises(UsageError, match="has ended"):
            tx.send(topic, b"late")
    with Session(other) as session, pytest.raises(UsageError, match="the session's engine"):
        outbox.send(session, topic, b"x")
    with engine.connect() as connection:
        with pytest.raises(UsageError, match="no transaction"):
            outbox.send(connection, topic, b"x")
        connection.execution_options(isolation_level="AUTOCOMMIT")
        with pytest.raises(UsageError, match="AUTOCOMMIT"), outbox.transaction(connection) as tx:
            tx.send(topic, b"x")
    maker = sessionmaker(engine)
    with pytest.raises(UsageError, match=r"given a sessionmaker; a Session, .* is expected"):
        outbox.send(maker, topic, b"x")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"given a AsyncSession; .* AsyncOutbox takes"):
        outbox.transaction(AsyncSession()).__enter__()  # type: ignore[arg-type]
    memory = sa.create_engine("sqlite://")
    with pytest.raises(UsageError, match="use a file"):
        Outbox(producer, memory)
    with pytest.raises(UsageError, match="AsyncOutbox takes"):
        Outbox(producer, create_async_engine("sqlite+aiosqlite:///x.db"))  # type: ignore[arg-type]


def test_asyncio_does_the_same(
    server: Server, topic: str, group: str, new_place: Callable[[str], Place], place: Place
) -> None:
    if not place.async_url:
        pytest.skip("SQLAlchemy's asyncio for this database needs another driver")

    async def go() -> None:
        engine = create_async_engine(place.async_url)
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        async with escrowmq.aio.Producer(server.nameserver, group=group) as producer:
            outbox = AsyncOutbox(producer, engine)
            await outbox.create_tables()
            async with AsyncSession(engine) as session:
                async with outbox.transaction(session) as tx:
                    session.add(Order(id="1"))
                    await tx.send(topic, b"1")
                    nested = await session.begin_nested()
                    await tx.send(topic, b"never")
                    await nested.rollback()
                with pytest.raises(KeyError):
                    async with outbox.transaction(session) as tx:
                        session.add(Order(id="2"))
                        await tx.send(topic, b"2")
                        raise KeyError
                message = escrowmq.Message(topic, b"3")
                sending = outbox.send(session, message)
                message.body = b"changed meanwhile"
                await sending
                await session.commit()
            scoped = async_scoped_session(async_sessionmaker(engine), asyncio.current_task)
            async with outbox.transaction(scoped) as tx:
                scoped.add(Order(id="6"))
                await tx.send(topic, b"6")
            await outbox.send(scoped, topic, b"7")
            await scoped.commit()
            await scoped.remove()
            with pytest.raises(UsageError, match=r"given a Session; .* Outbox takes"):
                await outbox.send(Session(), topic, b"x")  # type: ignore[arg-type]
            async with engine.connect() as connection:
                async with outbox.transaction(connection) as tx:
                    await tx.send(topic, b"4")
                await connection.execute(sa.insert(Order).values(id="5"))
                await outbox.send(connection, topic, b"5")
                await connection.commit()
            await asyncio.to_thread(
                wait_bodies, server, topic, [b"1", b"3", b"4", b"5", b"6", b"7"]
            )
        async with engine.connect() as connection:
            found = await connection.scalars(sa.select(Order.id))
            assert sorted(found) == ["1", "5", "6"]
        await engine.dispose()

    asyncio.run(go())


def test_an_outbox_that_cannot_be_made_does_not_go_on_listening(tmp_path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path}/shop.db")
    made = escrowmq.Producer("127.0.0.1:1", group="shop")
    made.close()
    with pytest.raises(UsageError):
        Outbox(made, engine, when_away="keep")
    assert engine_listener(engine).outboxes_count == 0

    async def go() -> None:
        awaited = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/shop.db")
        producer = escrowmq.aio.Producer("127.0.0.1:1", group="shop")
        await producer.close()
        with pytest.raises(UsageError):
            AsyncOutbox(producer, awaited, when_away="keep")
        assert engine_listener(awaited.sync_engine).outboxes_count == 0
        await awaited.dispose()

    asyncio.run(go())
    engine.dispose()
