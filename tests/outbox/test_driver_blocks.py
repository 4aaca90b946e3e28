"""Transactions inside a block of the outbox that are the driver's own, or end the block's."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import pymysql
import pytest

import escrowmq
from escrowmq.errors import EscrowMQError, MarkerNotWritten, UsageError
from escrowmq.integrations.dbapi import AsyncOutbox, Outbox
from escrowmq.integrations.dbapi.outbox import Transaction
from escrowmq.integrations.outbox import unsent_messages
from escrowmq.testing import Broker
from tests.interop import servers
from tests.interop.drivers import unique
from tests.interop.servers import Server
from tests.sdk.reading import bodies, wait_bodies

from .conftest import Place
from .test_dbapi import TABLE, Connect, add, change, connect, orders, outbox, producer

__all__ = ["connect", "outbox", "producer"]


@pytest.fixture
def connect_postgres(new_place: Callable[[str], Place], producer: escrowmq.Producer) -> Connect:
    """Connects to PostgreSQL, with all tables."""
    place = new_place("postgresql")
    made = lambda: psycopg.connect(place.address)  # noqa: E731
    change(made, TABLE)
    Outbox(producer, made).create_tables()
    return made


# -- psycopg ---------------------------------------------------------------------------------


@pytest.mark.parametrize("is_idle", [True, False])
def test_psycopgs_own_transactions_are_savepoints_of_the_block(
    server: Server,
    topic: str,
    connect_postgres: Connect,
    producer: escrowmq.Producer,
    *,
    is_idle: bool,
) -> None:
    """The first one was the whole transaction, and committed before the marker was written."""
    outbox = Outbox(producer, connect_postgres)
    connection = connect_postgres()
    if not is_idle:
        connection.execute("select 1")
    with outbox.transaction(connection) as tx:
        with contextlib.suppress(KeyError), connection.transaction():
            add(connection, "1")
            tx.send(topic, b"1")
            raise KeyError
        with connection.transaction():
            add(connection, "2")
            tx.send(topic, b"2")
            with connection.transaction(force_rollback=True):
                tx.send(topic, b"3")
            with connection.transaction() as inner:
                tx.send(topic, b"4")
                raise psycopg.Rollback(inner)
    closed = servers.new_topic(server, unique("T"), perm=4)
    with pytest.raises(EscrowMQError), outbox.transaction(connection) as tx:
        with connection.transaction():
            add(connection, "5")
            tx.send(closed, b"5")
    connection.rollback()  # behind the block it is its own again
    with connection.transaction():
        add(connection, "6")
    connection.close()
    assert orders(connect_postgres) == ["2", "6"]
    wait_bodies(server, topic, [b"2"])


def test_a_block_inside_psycopgs_own_transaction_is_refused(
    connect_postgres: Connect, producer: escrowmq.Producer
) -> None:
    outbox, connection = Outbox(producer, connect_postgres), connect_postgres()
    with connection.transaction(), pytest.raises(UsageError, match="in the place of"):
        outbox.transaction(connection).__enter__()
    connection.close()


def test_psycopg_awaited_does_the_same(
    server: Server, topic: str, group: str, new_place: Callable[[str], Place]
) -> None:
    address = new_place("postgresql").address

    async def go() -> list[str]:
        connection = await psycopg.AsyncConnection.connect(address)
        await connection.execute(TABLE)
        await connection.commit()
        async with escrowmq.aio.Producer(server.nameserver, group=group) as producer:
            outbox = AsyncOutbox(producer, lambda: psycopg.AsyncConnection.connect(address))
            await outbox.create_tables()
            for is_idle in (True, False):
                if not is_idle:
                    await connection.execute("select 1")
                async with outbox.transaction(connection) as tx:
                    with contextlib.suppress(KeyError):
                        async with connection.transaction():
                            await connection.execute("insert into orders values ('0')")
                            await tx.send(topic, b"never")
                            raise KeyError
                    async with connection.transaction():
                        await connection.execute(f"insert into orders values ('{is_idle}')")
                        await tx.send(topic, str(is_idle).encode())
                    async with connection.transaction(force_rollback=True):
                        await tx.send(topic, b"never")
                with pytest.raises(KeyError):
                    async with outbox.transaction(connection):
                        await connection.execute("insert into orders values ('2')")
                        raise KeyError
            async with connection.transaction():
                with pytest.raises(UsageError, match="in the place of"):
                    await outbox.transaction(connection).__aenter__()
            outbox.close()
            with pytest.raises(UsageError, match="the outbox is closed"):
                await outbox.transaction(connection).__aenter__()
        cursor = await connection.execute("select id from orders order by id")
        found = [row[0] for row in await cursor.fetchall()]
        await connection.close()
        return found

    assert asyncio.run(go()) == ["False", "True"]
    wait_bodies(server, topic, [b"False", b"True"])


# -- asyncpg ---------------------------------------------------------------------------------


@pytest.mark.parametrize("is_pooled", [False, True])
def test_asyncpgs_nested_transactions_take_their_messages_back(
    server: Server,
    topic: str,
    group: str,
    new_place: Callable[[str], Place],
    *,
    is_pooled: bool,
) -> None:
    address = new_place("postgresql").address

    async def work(outbox: AsyncOutbox, connection: Any) -> None:
        async with outbox.transaction(connection) as tx:
            with contextlib.suppress(KeyError):
                async with connection.transaction():
                    await tx.send(topic, b"never 1")
                    async with connection.transaction():
                        await tx.send(topic, b"never 2")
                    raise KeyError
            async with connection.transaction():
                await connection.execute("insert into orders values ('1')")
                await tx.send(topic, b"1")
            await connection.execute("savepoint Mine")
            await tx.send(topic, b"never 3")
            await connection.execute("rollback to savepoint mine;")
            await connection.execute("insert into orders values ('; savepoint mine')")
            await tx.send(topic, b"2")
        with pytest.raises(UsageError, match="inside the outbox's block"):
            async with outbox.transaction(connection) as tx:
                await tx.send(topic, b"never 4")
                await connection.execute("commit")

    async def go() -> None:
        pool = await asyncpg.create_pool(address, min_size=1, max_size=2)
        async with escrowmq.aio.Producer(server.nameserver, group=group) as producer:
            outbox = AsyncOutbox(producer, lambda: asyncpg.connect(address))
            await outbox.create_tables()
            await pool.execute(TABLE)
            if is_pooled:
                async with pool.acquire() as connection:
                    await work(outbox, connection)
            else:
                connection = await asyncpg.connect(address)
                await work(outbox, connection)
                await connection.close()
        await pool.close()

    asyncio.run(go())
    wait_bodies(server, topic, [b"1", b"2"])


def test_nothing_is_lost_behind_savepoints_that_asyncpg_has_rolled_back(
    escrowmq_broker: Broker, postgres_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It releases none of them. Those over the bound were not noticed, and a rollback to one of
    them removed every message, while the database committed."""
    monkeypatch.setattr(unsent_messages, "SAVEPOINTS_MAX", 2)

    async def roll_back(block: contextlib.AbstractAsyncContextManager[Any]) -> None:
        with contextlib.suppress(KeyError):
            async with block:
                raise KeyError

    async def go() -> None:
        connection = await asyncpg.connect(postgres_address)
        await connection.execute(TABLE)
        async with escrowmq.aio.Producer(group="shop", topics=["T"]) as producer:
            outbox = AsyncOutbox(producer, lambda: asyncpg.connect(postgres_address))
            await outbox.create_tables()
            async with outbox.transaction(connection) as tx:
                await tx.send("T", b"1")
                for _ in range(4):
                    await roll_back(connection.transaction())
                    await roll_back(tx.savepoint())
                async with tx.savepoint(), connection.transaction():
                    await tx.send("T", b"2")
            with pytest.raises(UsageError, match="nothing was sent, and all is rolled back: a tra"):
                async with outbox.transaction(connection) as tx:
                    await connection.execute("insert into orders values ('never')")
                    await tx.send("T", b"never")
                    for _ in range(3):
                        await connection.execute("savepoint mine")
                        await connection.execute("rollback to mine")
            assert await connection.fetch("select * from orders") == []
            await producer.flush()
        await connection.close()

    asyncio.run(go())
    assert escrowmq_broker.delivered("T") == [b"1", b"2"]


# -- the block's own transaction -------------------------------------------------------------


def test_a_block_commits_and_rolls_back_itself(
    server: Server, topic: str, connect: Connect, outbox: Outbox
) -> None:
    """What was committed inside stood without its messages when no broker took them."""
    connection = connect()
    for end in ("commit", "rollback"):
        with pytest.raises(Exception, match=r"(?i)inside|within a Transaction"):
            with outbox.transaction(connection) as tx:
                add(connection, end)
                tx.send(topic, b"never")
                getattr(connection, end)()
        connection.rollback()
    with outbox.transaction(connection) as tx:
        add(connection, "2")
        tx.send(topic, b"2")
    expected = ["2", "commit"] if isinstance(connection, sqlite3.Connection) else ["2"]
    assert orders(connect) == expected, "SQLite's driver is asked behind it"
    wait_bodies(server, topic, [b"2"])
    outbox.close()
    with pytest.raises(UsageError, match="the outbox is closed"):
        outbox.transaction(connection).__enter__()
    connection.close()


@pytest.mark.parametrize("is_idle", [True, False])
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_nor_does_psycopg_awaited_let_others_end_the_block(
    server: Server,
    topic: str,
    group: str,
    new_place: Callable[[str], Place],
    end: str,
    *,
    is_idle: bool,
) -> None:
    """A connection that was in a transaction before the block was not guarded."""
    address = new_place("postgresql").address

    async def go() -> list[str]:
        connection = await psycopg.AsyncConnection.connect(address)
        await connection.execute(TABLE)
        await connection.commit()
        async with escrowmq.aio.Producer(server.nameserver, group=group) as producer:
            outbox = AsyncOutbox(producer, lambda: psycopg.AsyncConnection.connect(address))
            await outbox.create_tables()
            if not is_idle:
                await connection.execute("select 1")
            with pytest.raises(Exception, match=r"(?i)inside|within a Transaction"):
                async with outbox.transaction(connection) as tx:
                    await connection.execute("insert into orders values ('never')")
                    await tx.send(topic, b"never")
                    await getattr(connection, end)()
            await connection.execute("insert into orders values ('1')")
            await connection.commit()  # behind the block it is its own again
            async with outbox.transaction(connection) as tx:
                await tx.send(topic, b"1")
        cursor = await connection.execute("select id from orders")
        found = [row[0] for row in await cursor.fetchall()]
        await connection.close()
        return found

    assert asyncio.run(go()) == ["1"]
    wait_bodies(server, topic, [b"1"])


@pytest.mark.parametrize("end", [lambda it: it.begin(), lambda it: it.autocommit(True)])
def test_nor_may_others_begin_a_transaction_of_mariadb(
    escrowmq_broker: Broker, new_place: Callable[[str], Place], end: Callable[[Any], None]
) -> None:
    """The server commits an open transaction then: the order stood without its message."""
    place = new_place("mariadb")

    def connect() -> Any:
        return pymysql.connect(unix_socket=place.address, user="root", database=place.name)

    change(connect, TABLE)
    with escrowmq.Producer(group="shop", topics=["T"]) as producer:
        outbox = Outbox(producer, connect)
        outbox.create_tables()
        connection = connect()
        with pytest.raises(UsageError, match="do neither"), outbox.transaction(connection) as tx:
            add(connection, "never")
            tx.send("T", b"never")
            end(connection)
        connection.begin()  # behind the block it is its own again
        add(connection, "1")
        connection.commit()
        connection.close()
        producer.flush()
    assert (orders(connect), escrowmq_broker.delivered("T")) == (["1"], [])


def test_a_deadlock_that_is_caught_takes_its_messages_along(
    server: Server, topic: str, new_place: Callable[[str], Place], producer: escrowmq.Producer
) -> None:
    """That the server has rolled all back looks the same as a rollback in SQL."""
    place = new_place("mariadb")

    def connect() -> Any:
        return pymysql.connect(unix_socket=place.address, user="root", database=place.name)

    change(connect, TABLE)
    outbox = Outbox(producer, connect)
    outbox.create_tables()
    connection = connect()
    with pytest.raises(MarkerNotWritten, match="rolled back the transaction meanwhile"):
        with outbox.transaction(connection) as tx:
            add(connection, "1")
            tx.send(topic, b"never")
            connection.cursor().execute("rollback")
            add(connection, "2")
    connection.close()
    assert (orders(connect), bodies(server, topic)) == ([], [])


def test_aiosqlite_is_looked_after_too(
    server: Server, topic: str, group: str, new_place: Callable[[str], Place]
) -> None:
    file = new_place("sqlite").address

    async def go() -> None:
        connection = await aiosqlite.connect(file)
        await connection.execute(TABLE)
        await connection.commit()
        async with escrowmq.aio.Producer(server.nameserver, group=group) as producer:
            outbox = AsyncOutbox(producer, lambda: aiosqlite.connect(file))
            await outbox.create_tables()
            with pytest.raises(UsageError, match="inside the outbox's block"):
                async with outbox.transaction(connection) as tx:
                    await tx.send(topic, b"never")
                    await connection.rollback()
                    await connection.execute("insert into orders values ('1')")
            async with outbox.transaction(connection) as tx:
                with contextlib.suppress(KeyError):
                    async with tx.savepoint():
                        await tx.send(topic, b"never")
                        raise KeyError
                await tx.send(topic, b"2")
        cursor = await connection.execute("select id from orders")
        assert await cursor.fetchall() == []
        await connection.close()

    asyncio.run(go())
    wait_bodies(server, topic, [b"2"])


def test_an_interrupt_at_the_end_of_a_block_leaves_the_connection_free(
    escrowmq_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of a time limit of Celery's, for instance. Each later block was refused."""

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "shop.db")

    with escrowmq.Producer(group="shop", topics=["T"]) as producer:
        outbox = Outbox(producer, connect)
        outbox.create_tables()
        connection = connect()
        with monkeypatch.context() as patch:
            patch.setattr(Transaction, "end_sends", interrupt)
            try:
                with outbox.transaction(connection):
                    pass
            except KeyboardInterrupt:
                pass
        gc.collect()
        with outbox.transaction(connection) as tx:
            tx.send("T", b"1")
        connection.close()
        producer.flush()
    assert escrowmq_broker.delivered("T") == [b"1"]
