"""Where both or neither is hard: lost connections, cancellations, locks, clusters, mistakes."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import escrowmq
from escrowmq.client.core.sending import Outcome
from escrowmq.integrations import dbapi
from escrowmq.integrations.dbapi import drivers
from escrowmq.integrations.dbapi.addresses import make_connector
from escrowmq.integrations.outbox import schema, tables, verdict
from escrowmq.integrations.outbox.steps import Rows, SqlStep, Steps, run_steps
from escrowmq.integrations.sqlalchemy import AsyncOutbox, Outbox
from escrowmq.integrations.sqlalchemy.outbox import Transaction
from escrowmq.testing import Broker
from tests.compensation.services import PostgresServer
from tests.interop.process import until
from tests.interop.servers import Server, new_topic
from tests.sdk.reading import bodies, wait_bodies

from .conftest import Place
from .cutting import Cutter
from .test_check_from_db import DIES, address_of
from .test_sqlalchemy import Base, Order, orders, producer

__all__ = ["producer"]

KEY = "0A" * 16


def told(server: Server, topic: str, producer: escrowmq.Producer) -> list[str]:
    """What is delivered once all is settled."""
    until("the end of all transactions", lambda: not producer.unsettled_keys(), within_s=60)
    return [body.decode() for body in bodies(server, topic)]


# -- what a check finds ----------------------------------------------------------------------


@pytest.fixture
def connect(place: Place) -> Callable[[], Any]:
    made = make_connector(address_of(place))
    connection = made()
    for statement in schema.create_statements(family(connection)):
        connection.cursor().execute(statement.text)
    name(connection)
    connection.commit()
    connection.close()
    return made


def family(connection: object) -> tables.SqlFamily:
    return drivers.find_driver(connection, drivers.PLAIN)[1].family


def verdict_here(family: tables.SqlFamily) -> Steps[Outcome]:
    """Of the table that is found."""
    proof = (yield SqlStep(tables.select_marker_table(family), is_read=True))[0][1]
    outcome = yield from verdict.decide_outcome(family, KEY, proof=str(proof))
    assert outcome is not None
    return outcome


def judged(connect: Callable[[], Any]) -> Outcome:
    """The verdict of a check, on a connection of its own."""
    connection = connect()
    driver = drivers.find_driver(connection, drivers.PLAIN)[1]

    def execute(step: SqlStep) -> Rows:
        return drivers.execute_step(connection, driver, step)

    try:
        return run_steps(verdict_here(driver.family), execute)
    finally:
        connection.close()


def mark(connection: Any) -> None:
    driver = drivers.find_driver(connection, drivers.PLAIN)[1]
    drivers.execute_on(
        connection, driver, tables.insert_outcome(driver.family, KEY, verdict.COMMIT)
    )


def name(connection: Any) -> None:
    """The database gets one."""
    driver = drivers.find_driver(connection, drivers.PLAIN)[1]
    named = tables.insert_outcome(driver.family, tables.NAME_ID, "shop")
    drivers.execute_on(connection, driver, named)


def test_a_marker_that_is_locked_is_no_answer_until_its_transaction_ends(
    connect: Callable[[], Any],
) -> None:
    writer = connect()
    mark(writer)
    began = time.monotonic()
    assert judged(connect) is Outcome.UNKNOWN
    assert time.monotonic() - began < 15, "no check waits for a lock for long"
    writer.commit()
    assert judged(connect) is Outcome.COMMIT
    writer.close()


def test_a_transaction_that_has_gone_is_rolled_back_for_good(connect: Callable[[], Any]) -> None:
    writer = connect()
    mark(writer)
    writer.close()
    assert judged(connect) is Outcome.ROLLBACK
    late = connect()
    with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
        mark(late)
    late.close()
    assert judged(connect) is Outcome.ROLLBACK


def test_a_replica_knows_what_was_committed_and_never_guesses_what_was_not(
    postgres: PostgresServer,
) -> None:
    """It takes no row, as a database that is read only takes none."""
    address = postgres.new_database()
    connect = make_connector(address)
    connection = psycopg.connect(address, autocommit=True)
    for statement in schema.create_statements(tables.SqlFamily.POSTGRESQL):
        connection.execute(statement.text.encode())
    name(connection)

    def as_replica() -> Any:
        made = connect()
        made.read_only = True
        return made

    assert judged(as_replica) is Outcome.UNKNOWN
    mark(connection)
    assert judged(as_replica) is Outcome.COMMIT
    connection.execute(tables.delete_markers([KEY]).in_paramstyle("format").encode(), (KEY,))
    assert judged(as_replica) is Outcome.UNKNOWN
    assert judged(connect) is Outcome.ROLLBACK
    connection.close()


def test_a_check_leaves_its_connection_as_it_was(new_place: Callable[[str], Place]) -> None:
    connection = make_connector(address_of(new_place("mariadb")))()
    cursor = connection.cursor()
    for statement in schema.create_statements(family(connection)):
        cursor.execute(statement.text)
    name(connection)
    cursor.execute("set innodb_lock_wait_timeout = 17")
    driver = drivers.find_driver(connection, drivers.PLAIN)[1]
    steps = verdict_here(driver.family)
    assert run_steps(steps, lambda step: drivers.execute_step(connection, driver, step)) is (
        Outcome.ROLLBACK
    )
    cursor.execute("select @@innodb_lock_wait_timeout")
    assert cursor.fetchone() == (17,)
    connection.close()


# -- connections that are lost ---------------------------------------------------------------


@pytest.fixture
def cutter(postgres: PostgresServer) -> Iterator[Cutter]:
    found = psycopg.conninfo.conninfo_to_dict(postgres.url)
    made = Cutter(str(found["host"]))
    yield made
    made.close()


def cut_url(place: Place, cutter: Cutter) -> str:
    name = psycopg.conninfo.conninfo_to_dict(place.address)["dbname"]
    return f"postgresql+psycopg://shop@127.0.0.1:{cutter.port}/{name}"


def test_a_connection_that_is_lost_at_the_commit_parts_nothing(
    server: Server,
    topic: str,
    producer: escrowmq.Producer,
    new_place: Callable[[str], Place],
    cutter: Cutter,
) -> None:
    place = new_place("postgresql")
    engine = sa.create_engine(cut_url(place, cutter))
    Base.metadata.create_all(engine)
    outbox = Outbox(producer, engine)
    outbox.create_tables()
    for number in range(10):
        with pytest.raises(DBAPIError), Session(engine) as session:
            with outbox.transaction(session) as tx:
                session.add(Order(id=str(number)))
                session.flush()
                tx.send(topic, str(number).encode())
                cutter.cuts = "after" if number % 2 else "before"
    assert told(server, topic, producer) == orders(engine) == ["1", "3", "5", "7", "9"]
    engine.dispose()


class CancelledAt:
    """Awaits a coroutine and cancels its task at the nth time that it waits for something, or at
    several times in a row."""

    def __init__(self, coroutine: Any, at: int, *, times: int = 1) -> None:
        self._coroutine = coroutine
        self._moments = range(at, at + times)
        self.count = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        inner = self._coroutine.__await__()
        value: Any = None
        raised: BaseException | None = None
        task = asyncio.current_task()
        assert task is not None
        while True:
            try:
                future = inner.throw(raised) if raised else inner.send(value)
            except StopIteration as end:
                return end.value
            self.count += 1
            raised = None
            if self.count in self._moments:
                asyncio.get_running_loop().call_soon(task.cancel)
            try:
                value = yield future
            except BaseException as error:  # noqa: BLE001 - goes on into the coroutine
                raised = error


@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
def test_a_cancellation_at_any_moment_parts_nothing(
    server: Server, topic: str, group: str, new_place: Callable[[str], Place], kind: str
) -> None:
    place = new_place(kind)
    rounds = 2

    async def go() -> None:
        engine = create_async_engine(place.async_url)
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        async with escrowmq.aio.Producer(server.nameserver, group=group) as producer:
            outbox = AsyncOutbox(producer, engine)
            await outbox.create_tables()

            async def order(number: str) -> None:
                async with AsyncSession(engine) as session, outbox.transaction(session) as tx:
                    session.add(Order(id=number))
                    await tx.send(topic, number.encode())

            await order("first")
            counted = CancelledAt(order("second"), 0)
            await counted
            for at in range(1, counted.count + 1):
                for each in range(rounds):

                    async def cancelled(number: str = f"{at}-{each}", at: int = at) -> None:
                        await CancelledAt(order(number), at)

                    task = asyncio.create_task(cancelled())
                    await asyncio.wait([task])
                    assert task.cancelled() or not task.exception()
            assert counted.count > 5
            async with asyncio.timeout(60):
                while await producer.unsettled_keys():
                    await asyncio.sleep(0.1)
        async with engine.connect() as connection:
            found = sorted(await connection.scalars(sa.select(Order.id)))
        await engine.dispose()
        delivered = await asyncio.to_thread(bodies, server, topic)
        assert [body.decode() for body in delivered] == found

    with warnings.catch_warnings():
        # A driver whose connect is cancelled leaves the socket to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        asyncio.run(go())
        gc.collect()


# -- two-phase commit, isolation -------------------------------------------------------------


def test_two_databases_commit_in_two_phases(
    server: Server,
    topic: str,
    producer: escrowmq.Producer,
    new_place: Callable[[str], Place],
) -> None:
    engines = [sa.create_engine(new_place("postgresql").url) for _ in range(2)]
    for each in engines:
        Base.metadata.create_all(each)
    outbox = Outbox(producer, engines[0])
    outbox.create_tables()

    def both(number: str) -> None:
        with Session(twophase=True) as session:
            for each in engines:
                connection = session.connection(bind_arguments={"bind": each})
                connection.execute(sa.insert(Order).values(id=number))
            outbox.send(session, topic, number.encode())
            session.commit()

    both("1")
    with engines[1].begin() as connection:
        connection.execute(sa.text(
            "alter table orders add constraint late unique (id) deferrable initially deferred"
        ))  # fmt: skip
        connection.execute(sa.text("alter table orders drop constraint orders_pkey"))
    with pytest.raises(DBAPIError):
        both("1")  # which the second database finds out when it prepares
    both("2")
    assert told(server, topic, producer) == orders(engines[0]) == ["1", "2"]
    for each in engines:
        each.dispose()


def test_a_prepared_transaction_is_not_known_until_it_is_decided(
    new_place: Callable[[str], Place],
) -> None:
    place = new_place("postgresql")
    connect = make_connector(place.address)
    writer = psycopg.connect(place.address)
    for statement in schema.create_statements(tables.SqlFamily.POSTGRESQL):
        writer.execute(statement.text)
    name(writer)
    writer.commit()
    mark(writer)
    writer.execute("prepare transaction 'order'")
    writer.close()
    assert judged(connect) is Outcome.UNKNOWN
    with psycopg.connect(place.address, autocommit=True) as decider:
        decider.execute("commit prepared 'order'")
    assert judged(connect) is Outcome.COMMIT


@pytest.mark.parametrize("level", ["SERIALIZABLE", "REPEATABLE READ"])
def test_any_isolation_level_will_do(
    server: Server,
    topic: str,
    producer: escrowmq.Producer,
    place: Place,
    level: str,
) -> None:
    if place.kind == "sqlite":
        pytest.skip("SQLite has one level")
    engine = sa.create_engine(place.url, isolation_level=level)
    Base.metadata.create_all(engine)
    outbox = Outbox(producer, engine)
    outbox.create_tables()
    with engine.begin() as connection:  # nobody tells the broker, so that it asks
        connection.execute(sa.insert(Order).values(id="1"))
        outbox.send(connection, topic, b"1")
    with Session(engine) as session, outbox.transaction(session) as tx:
        session.scalars(sa.select(Order)).all()
        session.add(Order(id="2"))
        tx.send(topic, b"2")
    assert told(server, topic, producer) == ["1", "2"]
    engine.dispose()


# -- mistakes --------------------------------------------------------------------------------


def test_a_service_of_another_database_answers_nothing(
    server: Server,
    topic: str,
    group: str,
    new_place: Callable[[str], Place],
    caplog: pytest.LogCaptureFixture,
) -> None:
    mine, other = new_place("sqlite"), new_place("sqlite")
    with escrowmq.Producer(server.nameserver, group=group) as producer:
        for each in (mine, other):
            dbapi.Outbox(producer, make_connector(address_of(each))).create_tables()
    command = [sys.executable, "-c", DIES, server.nameserver, group, topic, address_of(mine)]
    assert subprocess.run([*command, "after"], check=False, timeout=60).returncode == -9
    with escrowmq.Producer(server.nameserver, group=group) as producer:
        dbapi.Outbox(producer, make_connector(address_of(other)))
        with caplog.at_level(logging.WARNING):
            until("a check", lambda: "a producer group of its own" in caplog.text)
        assert producer.unsettled_keys()
        dbapi.Outbox(producer, make_connector(address_of(mine)))
        wait_bodies(server, topic, [b"after"])


@pytest.mark.ours_alone
def test_a_database_that_is_away_is_asked_again_as_often_as_it_takes(
    tmp_path: Path, new_place: Callable[[str], Place], caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"transactionTimeOut": 500, "transactionCheckInterval": 500,
                "transactionCheckMax": 3}  # fmt: skip
    server = Server("escrow", tmp_path / "server", settings).start()
    topic, group, place = new_topic(server, "paid"), "orders", new_place("postgresql")
    with escrowmq.Producer(server.nameserver, group=group) as producer:
        dbapi.Outbox(producer, make_connector(place.address)).create_tables()
    command = [sys.executable, "-c", DIES, server.nameserver, group, topic, place.address]
    assert subprocess.run([*command, "after"], check=False, timeout=60).returncode == -9
    where = [f"{place.address}-away"]
    with escrowmq.Producer(server.nameserver, group=group) as producer:
        dbapi.Outbox(producer, lambda: psycopg.connect(where[0]))
        with caplog.at_level(logging.WARNING):
            until("six checks", lambda: caplog.text.count("a database cannot be queried") >= 6)
        where[0] = place.address
        wait_bodies(server, topic, [b"after"])
    server.kill()


@pytest.mark.parametrize("make", [Session, sa.Engine.connect])
def test_an_interrupt_at_the_end_of_a_block_leaves_its_session_free(
    escrowmq_broker: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[sa.Engine], Any],
) -> None:
    """One of a time limit of Celery's, for instance. Each later block was refused."""

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    engine = sa.create_engine(f"sqlite:///{tmp_path}/shop.db")
    with escrowmq.Producer(group="shop", topics=["T"]) as producer, make(engine) as work:
        outbox = Outbox(producer, engine)
        outbox.create_tables()
        with monkeypatch.context() as patch:
            patch.setattr(Transaction, "end_sends", interrupt)
            try:
                with outbox.transaction(work):
                    pass
            except KeyboardInterrupt:
                pass
        gc.collect()
        with outbox.transaction(work) as tx:
            tx.send("T", b"1")
        producer.flush()
    engine.dispose()
    assert escrowmq_broker.delivered("T") == [b"1"]
