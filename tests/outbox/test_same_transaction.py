"""The outbox sees which transaction its messages belong to, or refuses them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import escrowmq
from escrowmq.errors import EscrowMQError, MarkerNotWritten, UsageError
from escrowmq.integrations.sqlalchemy import AsyncOutbox, Outbox, add_tables
from tests.interop import servers
from tests.interop.drivers import unique
from tests.interop.process import until
from tests.interop.servers import Server
from tests.sdk.reading import bodies, wait_bodies

from .conftest import Place
from .test_sqlalchemy import Base, Order, engine, orders, outbox, producer

__all__ = ["engine", "outbox", "producer"]


def buy(session: Session, outbox: Outbox, topic: str, number: str) -> None:
    with outbox.transaction(session) as tx:
        session.execute(sa.insert(Order).values(id=number))
        tx.send(topic, number.encode())


# -- which engine ----------------------------------------------------------------------------


def test_engines_over_one_pool_are_one(
    server: Server, topic: str, engine: sa.Engine, producer: escrowmq.Producer
) -> None:
    """An outbox on one of them heard nothing of the others' commits: nothing was ever sent."""
    branch = engine.execution_options(logging_token="a").execution_options(logging_token="b")
    sibling = engine.execution_options(logging_token="c")
    outbox = Outbox(producer, branch)
    outbox.create_tables()
    for number, each in enumerate((engine, sibling, branch)):
        with Session(each) as session:
            buy(session, outbox, topic, str(number))
    wait_bodies(server, topic, [b"0", b"1", b"2"])


def test_a_connection_whose_commits_are_not_heard_of_is_refused(
    topic: str, engine: sa.Engine, outbox: Outbox
) -> None:
    stranger = sa.Engine(engine.pool, engine.dialect, engine.url)
    with Session(stranger) as session, pytest.raises(UsageError, match="is not notified of"):
        outbox.send(session, topic, b"never")


# -- which table -----------------------------------------------------------------------------


@pytest.fixture
def tenants(new_place: Callable[[str], Place]) -> Iterator[sa.Engine]:
    """PostgreSQL with all tables in `public` and in a tenant's schema."""
    engine = sa.create_engine(new_place("postgresql").url)
    metadata = sa.MetaData()
    sa.Table("orders", metadata, sa.Column("id", sa.String(40), primary_key=True))
    add_tables(metadata)
    for schema in ("public", "tenant"):
        with engine.begin() as connection:
            connection.execute(sa.text(f"create schema if not exists {schema}"))
            connection.execute(sa.text(f"set local search_path to {schema}"))
            metadata.create_all(connection, checkfirst=False)
    yield engine
    engine.dispose()


def tells_nobody(engine: sa.Engine) -> None:
    """From here on, brokers hear of no commit of a connection, and ask."""
    event.listen(engine, "commit", lambda connection: connection.info.clear())


def as_tenant(engine: sa.Engine, outbox: Outbox, topic: str, number: str) -> None:
    """Committed in the tenant's schema."""
    with engine.connect() as connection, connection.begin():
        connection.execute(sa.text("set local search_path to tenant"))
        connection.execute(sa.insert(Order).values(id=number))
        outbox.send(connection, topic, number.encode())


def test_a_marker_in_another_schema_is_no_rollback(
    server: Server,
    topic: str,
    tenants: sa.Engine,
    producer: escrowmq.Producer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The check looked into `public`, and a committed order's message was gone for good."""
    outbox = Outbox(producer, tenants)
    outbox.create_tables()
    tells_nobody(tenants)
    with caplog.at_level(logging.WARNING):
        as_tenant(tenants, outbox, topic, "1")
        until("a check", lambda: "give the outbox schema=" in caplog.text)
    assert producer.unsettled_keys()
    with tenants.connect() as connection:
        says = connection.scalars(sa.text("select says from public.escrowmq_markers")).all()
        assert "rollback" not in says
    # Two transactions in different schemas, and one marker in each.
    with Session(tenants) as session:
        buy(session, outbox, topic, "2")
    wait_bodies(server, topic, [b"2"])


def test_a_schema_that_the_outbox_is_given_holds_for_all_transactions(
    server: Server, topic: str, tenants: sa.Engine, producer: escrowmq.Producer
) -> None:
    outbox = Outbox(producer, tenants, schema="public")
    tells_nobody(tenants)
    as_tenant(tenants, outbox, topic, "1")
    wait_bodies(server, topic, [b"1"])  # which a check has found in `public`
    with tenants.connect() as connection:
        assert connection.scalar(sa.text("select count(*) from tenant.escrowmq_markers")) == 0
    with pytest.raises(UsageError, match="are allowed"):
        Outbox(producer, tenants, schema='a"b')


def test_tables_in_a_schema_of_their_own_are_made_and_used_there(
    server: Server, topic: str, new_place: Callable[[str], Place], producer: escrowmq.Producer
) -> None:
    engine = sa.create_engine(new_place("postgresql").url)
    Base.metadata.create_all(engine)
    metadata = sa.MetaData(schema="sales")
    markers, _ = add_tables(metadata)
    with engine.begin() as connection:
        connection.execute(sa.text("create schema sales"))
        metadata.create_all(connection)
    with Session(engine) as session:
        with pytest.raises(MarkerNotWritten, match="create_tables"):
            buy(session, Outbox(producer, engine), topic, "1")
        outbox = Outbox(producer, engine, schema="sales")
        outbox.create_tables()
        buy(session, outbox, topic, "2")
        wait_bodies(server, topic, [b"2"])
        assert "commit" in session.scalars(sa.select(markers.c.says)).all()
    assert outbox.forget_handled() == outbox.forget_markers() == 0
    engine.dispose()


def test_another_database_on_the_same_connection_is_noticed(
    server: Server, topic: str, new_place: Callable[[str], Place], producer: escrowmq.Producer
) -> None:
    places = [new_place("mariadb") for _ in range(2)]
    engines = [sa.create_engine(place.url) for place in places]
    for each in engines:
        Base.metadata.create_all(each)
        Outbox(producer, each).create_tables()
    outbox = Outbox(producer, engines[0])
    with Session(engines[0]) as session:
        buy(session, outbox, topic, "1")
    with engines[0].connect() as connection:
        with outbox.transaction(connection) as tx:
            connection.execute(sa.text(f"use {places[1].name}"))
            connection.execute(sa.insert(Order).values(id="2"))
            tx.send(topic, b"2")
        connection.invalidate()
    assert orders(engines[1]) == ["2"]
    wait_bodies(server, topic, [b"1", b"2"])
    with engines[1].connect() as connection:
        assert "commit" in connection.scalars(sa.text("select says from escrowmq_markers")).all()
    for each in engines:
        each.dispose()


# -- transactions that the database ends -----------------------------------------------------


def test_a_deadlock_that_is_caught_takes_its_messages_along(
    topic: str, server: Server, new_place: Callable[[str], Place], producer: escrowmq.Producer
) -> None:
    """The server had rolled the order back, and the message was delivered."""
    engine = sa.create_engine(new_place("mariadb").url)
    Base.metadata.create_all(engine)
    outbox = Outbox(producer, engine)
    outbox.create_tables()
    with engine.begin() as connection:
        connection.execute(sa.text("create table counters (id int primary key, n int)"))
        connection.execute(sa.text("insert into counters values (1, 0), (2, 0)"))
    count = "update counters set n = n + 1 where id = :id"
    has_second, seen = threading.Event(), []

    def other() -> None:
        with engine.connect() as connection:
            for number in range(200):  # heavier, so that the other one is the victim
                connection.execute(sa.insert(Order).values(id=f"other {number}"))
            connection.execute(sa.text(count), {"id": 2})
            has_second.set()
            with contextlib.suppress(sa.exc.OperationalError):
                connection.execute(sa.text(count), {"id": 1})
            connection.rollback()

    thread = threading.Thread(target=other)
    with pytest.raises(MarkerNotWritten, match="rolled back the transaction meanwhile"):
        with Session(engine) as session, outbox.transaction(session) as tx:
            session.execute(sa.insert(Order).values(id="1"))
            tx.send(topic, b"never")
            session.execute(sa.text(count), {"id": 1})
            thread.start()
            has_second.wait(30)
            try:
                session.execute(sa.text(count), {"id": 2})
            except sa.exc.OperationalError as error:  # counters do not matter
                seen.append(error.orig.args[0])  # type: ignore[union-attr]
            session.execute(sa.insert(Order).values(id="2"))
    thread.join()
    assert (seen, orders(engine), bodies(server, topic)) == ([1213], [], [])
    engine.dispose()


def test_a_rollback_of_sqlites_own_takes_its_messages_along(
    topic: str, server: Server, new_place: Callable[[str], Place], producer: escrowmq.Producer
) -> None:
    engine = sa.create_engine(new_place("sqlite").url)
    Base.metadata.create_all(engine)
    outbox = Outbox(producer, engine)
    outbox.create_tables()
    with Session(engine) as session:
        with pytest.raises(MarkerNotWritten, match="rolled back the transaction meanwhile"):
            with outbox.transaction(session) as tx:
                session.execute(sa.insert(Order).values(id="1"))
                tx.send(topic, b"never")
                with contextlib.suppress(sa.exc.IntegrityError):
                    session.execute(sa.text("insert or rollback into orders values ('1')"))
                session.execute(sa.insert(Order).values(id="2"))
        assert orders(engine) == []
        with outbox.transaction(session) as tx:  # a savepoint's marker goes with it
            with contextlib.suppress(KeyError), session.begin_nested():
                tx.send(topic, b"never")
                raise KeyError
            tx.send(topic, b"1")
    wait_bodies(server, topic, [b"1"])
    engine.dispose()


# -- statements that commit by themselves ----------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "options"),
    [("postgresql", {"autocommit": True}), ("sqlite", {"isolation_level": None}),
     ("mariadb", {"autocommit": True})],
)  # fmt: skip
def test_a_driver_that_commits_each_statement_is_refused_before_the_first(
    topic: str,
    new_place: Callable[[str], Place],
    producer: escrowmq.Producer,
    kind: str,
    options: dict[str, object],
) -> None:
    engine = sa.create_engine(new_place(kind).url, connect_args=options)
    Base.metadata.create_all(engine)
    outbox = Outbox(producer, engine)
    outbox.create_tables()
    with Session(engine) as session:
        with pytest.raises(UsageError, match="leave autocommit out"):
            buy(session, outbox, topic, "1")
        session.execute(sa.insert(Order).values(id="2"))
        with pytest.raises(UsageError, match="leave autocommit out"):
            outbox.send(session, topic, b"2")
    with engine.connect() as connection, pytest.raises(UsageError, match="leave autocommit out"):
        outbox.transaction(connection).__enter__()
    assert orders(engine) == ["2"]
    engine.dispose()


def test_sqlite_without_an_isolation_level_works_behind_a_begin(
    server: Server, topic: str, new_place: Callable[[str], Place], producer: escrowmq.Producer
) -> None:
    engine = sa.create_engine(new_place("sqlite").url, connect_args={"isolation_level": None})
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    Base.metadata.create_all(engine)
    outbox = Outbox(producer, engine)
    outbox.create_tables()
    with Session(engine) as session:
        buy(session, outbox, topic, "1")
    wait_bodies(server, topic, [b"1"])
    engine.dispose()


def test_checks_set_their_lock_wait_on_an_engine_with_autocommit(
    new_place: Callable[[str], Place], producer: escrowmq.Producer
) -> None:
    """They waited for as long as a transaction lasted."""
    engine = sa.create_engine(new_place("postgresql").url, isolation_level="AUTOCOMMIT")
    outbox = Outbox(producer, engine)
    outbox.create_tables()
    seen: list[bool] = []

    def commits_by_itself(connection: sa.Connection) -> bool:
        return bool(connection.connection.driver_connection.autocommit)  # type: ignore[union-attr]

    @event.listens_for(engine, "before_cursor_execute")
    def look(connection: sa.Connection, *_: object) -> None:
        seen.append(commits_by_itself(connection))

    outbox.find_name()
    assert set(seen) == {False}
    with engine.connect() as connection:
        assert commits_by_itself(connection)
    engine.dispose()


# -- domain events ---------------------------------------------------------------------------


def test_a_listener_of_a_session_sends(
    server: Server, topic: str, group: str, new_place: Callable[[str], Place]
) -> None:
    """With asyncio it got a coroutine, which nobody awaited: the order was there, the event was
    not."""
    place = new_place("postgresql")

    async def go() -> None:
        engine = create_async_engine(place.async_url)
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        async with escrowmq.aio.Producer(server.nameserver, group=group) as producer:
            outbox = AsyncOutbox(producer, engine)
            await outbox.create_tables()
            async with AsyncSession(engine) as session:

                @event.listens_for(session.sync_session, "before_commit")
                def tell(plain: Session) -> None:
                    with pytest.raises(UsageError, match=r"use send_nowait\(session"):
                        outbox.send(plain, topic, b"never")  # type: ignore[arg-type, unused-coroutine]
                    with pytest.raises(UsageError, match=r"await send\(\)"):
                        outbox.send_nowait(session, topic, b"never")  # type: ignore[arg-type]
                    outbox.send_nowait(plain, topic, b"event")

                session.add(Order(id="1"))
                await session.commit()
            await asyncio.to_thread(wait_bodies, server, topic, [b"event"])
            outbox.close()
        await engine.dispose()

    asyncio.run(go())


# -- when brokers hear of a commit -----------------------------------------------------------


@pytest.fixture
def patient(server: Server, engine: sa.Engine, group: str) -> Iterator[Outbox]:
    """Of a producer that no broker ever asks: what is not told is not delivered."""
    with escrowmq.Producer(server.nameserver, group=group) as producer:
        made = Outbox(producer, engine)
        made.create_tables()
        producer.remove_database_check(made._answer_check)
        yield made


def test_a_connection_without_a_block_tells_when_it_is_closed(
    server: Server, topic: str, engine: sa.Engine, patient: Outbox
) -> None:
    with engine.begin() as connection:
        connection.execute(sa.insert(Order).values(id="1"))
        patient.send(connection, topic, b"1")
    with engine.connect() as connection, connection.begin() as transaction:
        connection.execute(sa.insert(Order).values(id="2"))
        patient.send(connection, topic, b"never")
        transaction.rollback()
    wait_bodies(server, topic, [b"1"])


@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
def test_one_of_asyncio_tells_when_it_is_closed(
    server: Server, topic: str, group: str, new_place: Callable[[str], Place], kind: str
) -> None:
    place = new_place(kind)

    async def go() -> None:
        engine = create_async_engine(place.async_url)
        async with escrowmq.aio.Producer(server.nameserver, group=group) as producer:
            outbox = AsyncOutbox(producer, engine)
            await outbox.create_tables()
            producer.remove_database_check(outbox._answer_check)
            async with engine.begin() as connection:
                await outbox.send(connection, topic, b"1")
            await asyncio.to_thread(wait_bodies, server, topic, [b"1"])
        await engine.dispose()

    asyncio.run(go())


def test_a_commit_that_was_refused_is_not_told_of(
    server: Server, topic: str, engine: sa.Engine, patient: Outbox
) -> None:
    @event.listens_for(engine, "commit")
    def late(connection: sa.Connection) -> None:
        if connection.info.get("refuse"):
            raise ValueError("refused")

    with pytest.raises(ValueError, match="refused"), engine.begin() as connection:
        connection.execute(sa.insert(Order).values(id="1"))
        patient.send(connection, topic, b"never")
        connection.info["refuse"] = True
    engine.dispose()
    with engine.begin() as connection:
        patient.send(connection, topic, b"2")
    wait_bodies(server, topic, [b"2"])
    assert orders(engine) == []


# -- the pool, and the end -------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_first_transactions_need_no_second_connection_of_the_pool(
    server: Server,
    topic: str,
    new_place: Callable[[str], Place],
    producer: escrowmq.Producer,
    kind: str,
) -> None:
    """As many as the pool had waited for its time-out, and failed."""
    engine = sa.create_engine(new_place(kind).url, pool_size=3, max_overflow=0, pool_timeout=5)
    Base.metadata.create_all(engine)
    metadata = sa.MetaData()
    add_tables(metadata)
    metadata.create_all(engine)
    outbox, gate = Outbox(producer, engine), threading.Barrier(3)
    errors: list[Exception] = []

    def work(number: int) -> None:
        try:
            with Session(engine) as session, outbox.transaction(session) as tx:
                session.execute(sa.insert(Order).values(id=str(number)))
                gate.wait(30)
                tx.send(topic, str(number).encode())
                gate.wait(30)
        except Exception as error:  # noqa: BLE001 - shown below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    until("all three", lambda: sorted(bodies(server, topic)) == [b"0", b"1", b"2"])
    engine.dispose()


def test_closed_outboxes_leave_the_engine(
    server: Server, topic: str, group: str, engine: sa.Engine
) -> None:
    with escrowmq.Producer(server.nameserver, group=group) as producer:
        first, second = Outbox(producer, engine), Outbox(producer, engine)
        first.create_tables()
        board = first._hooks._listener
        assert board.outboxes_count == 2
        with Session(engine) as session:
            with first.transaction(session) as tx:
                tx.send(topic, b"1")
                first.close()
            assert board.outboxes_count == 1, "its transaction went on to the end"
            with pytest.raises(UsageError, match="the outbox is closed"):
                first.send(session, topic, b"never")
        assert second is not None
    until("the producer's outboxes to leave", lambda: board.outboxes_count == 0)
    wait_bodies(server, topic, [b"1"])


def test_what_no_broker_takes_is_rolled_back_on_sqlite_too(
    server: Server, new_place: Callable[[str], Place], producer: escrowmq.Producer
) -> None:
    closed = servers.new_topic(server, unique("T"), perm=4)
    place = new_place("sqlite")
    engine = sa.create_engine(place.url)
    Base.metadata.create_all(engine)
    outbox = Outbox(producer, engine)
    outbox.create_tables()
    with Session(engine) as session, pytest.raises(EscrowMQError):
        buy(session, outbox, closed, "1")
    with contextlib.closing(sqlite3.connect(place.address)) as connection:
        rows = connection.execute("select says from escrowmq_markers").fetchall()
        assert ("commit",) not in rows
    engine.dispose()
