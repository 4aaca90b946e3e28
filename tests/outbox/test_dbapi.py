"""The outbox of connections without an ORM, on real databases, with a real broker."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import pymysql
import pytest

import escrowmq
from escrowmq.client.delivery import HeldMessage
from escrowmq.errors import EscrowMQError, MarkerNotWritten, UsageError
from escrowmq.integrations.dbapi import AsyncOutbox, Outbox, consume_once
from escrowmq.integrations.outbox import schema
from escrowmq.integrations.outbox.tables import SqlFamily
from tests.interop import servers
from tests.interop.drivers import unique
from tests.interop.servers import Server
from tests.sdk.reading import bodies, wait_bodies

from .conftest import Place

TABLE = "create table orders (id varchar(40) primary key)"
Connect = Callable[[], Any]


@pytest.fixture
def connect(place: Place) -> Connect:
    made: Connect
    if place.kind == "sqlite":
        made = lambda: sqlite3.connect(place.address)  # noqa: E731
    elif place.kind == "postgresql":
        made = lambda: psycopg.connect(place.address)  # noqa: E731
    else:
        made = lambda: pymysql.connect(  # noqa: E731
            unix_socket=place.address, user="root", database=place.name
        )
    change(made, TABLE)
    return made


def change(connect: Connect, text: str) -> None:
    connection = connect()
    connection.cursor().execute(text)
    connection.commit()
    connection.close()


def orders(connect: Connect) -> list[str]:
    connection = connect()
    cursor = connection.cursor()
    cursor.execute("select id from orders order by id")
    found = [row[0] for row in cursor.fetchall()]
    connection.close()
    return found


def add(connection: Any, number: str) -> None:
    connection.cursor().execute(f"insert into orders (id) values ('{number}')")


@pytest.fixture
def producer(server: Server, group: str) -> Iterator[escrowmq.Producer]:
    with escrowmq.Producer(server.nameserver, group=group) as made:
        yield made


@pytest.fixture
def outbox(producer: escrowmq.Producer, connect: Connect) -> Outbox:
    made = Outbox(producer, connect)
    made.create_tables()
    made.create_tables()
    return made


def test_a_block_commits_or_takes_all_back(
    server: Server, topic: str, connect: Connect, outbox: Outbox
) -> None:
    connection = connect()
    with outbox.transaction(connection) as tx:
        add(connection, "1")
        tx.send(topic, b"1")
        with pytest.raises(KeyError), tx.savepoint():
            add(connection, "2")
            tx.send(topic, b"2")
            raise KeyError
        with tx.savepoint():
            add(connection, "3")
            tx.send(topic, b"3")
        assert bodies(server, topic) == []
    with pytest.raises(KeyError), outbox.transaction(connection) as tx:
        add(connection, "4")
        tx.send(topic, b"4")
        raise KeyError
    with outbox.transaction(connection):
        add(connection, "5")
    with pytest.raises(UsageError, match="has ended"):
        tx.send(topic, b"late")
    connection.close()
    assert orders(connect) == ["1", "3", "5"]
    wait_bodies(server, topic, [b"1", b"3"])


def test_what_cannot_be_written_or_stored_rolls_back(
    server: Server, topic: str, producer: escrowmq.Producer, connect: Connect
) -> None:
    outbox = Outbox(producer, connect)
    connection = connect()
    with (
        pytest.raises(MarkerNotWritten, match="create_tables"),
        outbox.transaction(connection) as tx,
    ):
        add(connection, "1")
        tx.send(topic, b"1")
    outbox.create_tables()
    closed = servers.new_topic(server, unique("T"), perm=4)
    with pytest.raises(EscrowMQError), outbox.transaction(connection) as tx:
        add(connection, "2")
        tx.send(closed, b"1")
    with outbox.transaction(connection) as tx:
        add(connection, "3")
        tx.send(topic, b"3")
    connection.close()
    wait_bodies(server, topic, [b"3"])
    assert orders(connect) == ["3"]


def test_a_block_of_another_outbox_does_not_commit_the_one_around_it(
    connect: Connect, outbox: Outbox, producer: escrowmq.Producer
) -> None:
    """Its end took the guard away from the connection, and its commit was that of all."""
    connection, other = connect(), Outbox(producer, connect)
    with pytest.raises(UsageError, match="Two outboxes need two connections"):
        with outbox.transaction(connection):
            add(connection, "never")
            with other.transaction(connection):
                add(connection, "never either")
    with other.transaction(connection):
        add(connection, "1")
    connection.close()
    assert orders(connect) == ["1"]


def test_a_connection_that_commits_by_itself_is_refused(connect: Connect, outbox: Outbox) -> None:
    connection = connect()
    with outbox.transaction(connection):
        with pytest.raises(UsageError, match="already has an open block"):
            outbox.transaction(connection).__enter__()
    if isinstance(connection, pymysql.Connection):
        connection.autocommit(True)
    elif isinstance(connection, psycopg.Connection):
        connection.autocommit = True
    else:
        connection.isolation_level = None  # then the block begins one itself
        with outbox.transaction(connection):
            assert connection.in_transaction
        connection.close()
        return
    with pytest.raises(UsageError, match="turn that off"):
        outbox.transaction(connection).__enter__()
    connection.close()


def test_a_database_without_a_name_gets_one_from_the_first_transaction(
    server: Server, topic: str, connect: Connect, outbox: Outbox, producer: escrowmq.Producer
) -> None:
    change(connect, "delete from escrowmq_markers")  # as tests do that empty all tables
    outbox = Outbox(producer, connect)
    connection = connect()
    with outbox.transaction(connection) as tx:
        add(connection, "1")
        tx.send(topic, b"1")
    connection.close()
    wait_bodies(server, topic, [b"1"])


def test_a_foreign_connection_is_named(producer: escrowmq.Producer) -> None:
    outbox = Outbox(producer, lambda: None)
    with pytest.raises(UsageError, match="those of psycopg, psycopg2, sqlite3"):
        outbox.transaction(object()).__enter__()
    with pytest.raises(UsageError, match="AsyncOutbox takes"):
        Outbox(object(), lambda: None)  # type: ignore[arg-type]


async def handles_once(connect: Connect, topic: str) -> None:
    seen: list[str] = []

    @consume_once(connect, group="mailer")
    async def handle(message: HeldMessage, connection: Any) -> None:
        await connection.execute(f"insert into orders values ('{message.message_id}')")
        seen.append(message.message_id)

    for number in ("8", "8", "9"):
        await handle(HeldMessage(topic, b"x", message_id=number))
    assert seen == ["8", "9"]


@pytest.mark.parametrize("kind", ["psycopg", "asyncpg", "aiosqlite"])
def test_connections_that_are_awaited(
    server: Server, topic: str, group: str, new_place: Callable[[str], Place], kind: str
) -> None:
    place = new_place("sqlite" if kind == "aiosqlite" else "postgresql")

    async def connect() -> Any:
        if kind == "psycopg":
            return await psycopg.AsyncConnection.connect(place.address)
        if kind == "asyncpg":
            return await asyncpg.connect(place.address)
        return await aiosqlite.connect(place.address)

    async def go() -> None:
        connection = await connect()
        await connection.execute(TABLE)
        if kind != "asyncpg":
            await connection.commit()
        async with escrowmq.aio.Producer(server.nameserver, group=group) as producer:
            outbox = AsyncOutbox(producer, connect)
            with pytest.raises(MarkerNotWritten):
                async with outbox.transaction(connection) as tx:
                    await tx.send(topic, b"never")
            await outbox.create_tables()
            async with outbox.transaction(connection) as tx:
                await connection.execute("insert into orders values ('1')")
                await tx.send(topic, b"1")
                with pytest.raises(KeyError):
                    async with tx.savepoint():
                        await connection.execute("insert into orders values ('2')")
                        await tx.send(topic, b"2")
                        raise KeyError
                async with tx.savepoint():
                    await tx.send(topic, b"3")
                with pytest.raises(UsageError, match="already"):
                    await outbox.transaction(connection).__aenter__()
            with pytest.raises(KeyError):
                async with outbox.transaction(connection) as tx:
                    await tx.send(topic, b"4")
                    raise KeyError
            with pytest.raises(UsageError, match="has ended"):
                await tx.send(topic, b"late")
            if kind == "asyncpg":
                with pytest.raises(UsageError, match="begin it, in the place of"):
                    async with connection.transaction(), outbox.transaction(connection):
                        pass

            await handles_once(connect, topic)
            assert await outbox.forget_handled() == await outbox.forget_markers() == 0
        if kind == "asyncpg":
            found = [row[0] for row in await connection.fetch("select id from orders")]
        else:
            cursor = await connection.execute("select id from orders")
            found = [row[0] for row in await cursor.fetchall()]
        assert found == ["1", "8", "9"]
        await connection.close()

    asyncio.run(go())
    wait_bodies(server, topic, [b"1", b"3"])


def test_a_message_is_handled_once(connect: Connect, outbox: Outbox) -> None:
    fails = True

    @consume_once(connect, group="mailer")
    def handle(message: HeldMessage, connection: Any) -> None:
        add(connection, message.message_id)
        if fails:
            raise KeyError

    with pytest.raises(KeyError):
        handle(HeldMessage("T", b"x", message_id="1"))
    fails = False
    for number in ("1", "1", "2"):
        handle(HeldMessage("T", b"x", message_id=number))
    assert orders(connect) == ["1", "2"]
    assert outbox.forget_handled() == 0


def test_work_behind_a_rollback_is_not_committed_without_its_record(
    connect: Connect, outbox: Outbox
) -> None:
    """That the server has rolled all back, for a deadlock that the handler catches, looks the same
    as a rollback in SQL."""
    is_deadlocked = True

    @consume_once(connect, group="mailer")
    def handle(message: HeldMessage, connection: Any) -> None:
        add(connection, "1")
        if is_deadlocked:
            connection.cursor().execute("rollback")
        add(connection, "2")

    with pytest.raises(MarkerNotWritten, match="Let the database's errors leave the handler"):
        handle(HeldMessage("T", b"x", message_id="1"))
    assert orders(connect) == []
    is_deadlocked = False
    for _ in range(2):
        handle(HeldMessage("T", b"x", message_id="1"))
    assert orders(connect) == ["1", "2"]


def test_keys_that_differ_in_blanks_at_their_end_are_two(connect: Connect, outbox: Outbox) -> None:
    """MariaDB and MySQL compare texts as if they had none."""
    seen: list[str] = []

    @consume_once(connect, key=lambda message: message.body.decode(), group="mailer")
    def handle(message: HeldMessage, connection: Any) -> None:
        seen.append(message.body.decode())

    keys = ["ACC 1", "ACC 1 ", "ACC 1  ", " ACC 1"]
    for key in (*keys, *keys):
        handle(HeldMessage("T", key.encode(), message_id="1"))
    assert seen == keys


@pytest.mark.parametrize("place", ["postgresql"], indirect=True)
@pytest.mark.parametrize("step", ["error", "commit", "rollback"])
def test_work_that_postgresql_would_not_commit_is_not_taken_for_done(
    connect: Connect, outbox: Outbox, step: str
) -> None:
    """Its COMMIT of a transaction with an error rolled back in silence: the message was
    acknowledged, and nothing of it was in the database."""
    is_wrong = True

    @consume_once(connect, group="mailer")
    def handle(message: HeldMessage, connection: Any) -> None:
        add(connection, "1")
        if is_wrong and step == "error":
            with contextlib.suppress(psycopg.Error):
                add(connection, "1")
        elif is_wrong:
            getattr(connection, step)()

    with pytest.raises(MarkerNotWritten, match="Let the database's errors leave the handler"):
        handle(HeldMessage("T", b"x", message_id="1"))
    change(connect, "delete from orders")  # what the handler itself has committed
    is_wrong = False
    change(connect, "delete from escrowmq_handled" if step == "commit" else "select 1")
    for _ in range(2):
        handle(HeldMessage("T", b"x", message_id="1"))
    assert orders(connect) == ["1"]


@pytest.mark.parametrize("kind", ["psycopg", "asyncpg"])
def test_nor_where_postgresql_is_awaited(new_place: Callable[[str], Place], kind: str) -> None:
    address = new_place("postgresql").address
    plain = lambda: psycopg.connect(address)  # noqa: E731
    change(plain, TABLE)
    for statement in schema.create_statements(SqlFamily.POSTGRESQL):
        change(plain, statement.text)

    async def connect() -> Any:
        if kind == "psycopg":
            return await psycopg.AsyncConnection.connect(address)
        return await asyncpg.connect(address)

    @consume_once(connect, group="mailer")
    async def handle(message: HeldMessage, connection: Any) -> None:
        await connection.execute("insert into orders values ('1')")
        with contextlib.suppress(psycopg.Error, asyncpg.PostgresError):
            await connection.execute("insert into orders values ('1')")

    with pytest.raises(MarkerNotWritten):
        asyncio.run(handle(HeldMessage("T", b"x", message_id="1")))
    assert orders(plain) == []


def test_nor_where_connections_are_awaited(new_place: Callable[[str], Place]) -> None:
    file = new_place("sqlite").address
    change(lambda: sqlite3.connect(file), TABLE)
    with sqlite3.connect(file) as made:
        for statement in schema.create_statements(SqlFamily.SQLITE):
            made.execute(statement.text)
    made.close()

    @consume_once(lambda: aiosqlite.connect(file), group="mailer")
    async def handle(message: HeldMessage, connection: Any) -> None:
        await connection.execute("rollback")
        await connection.execute("insert into orders values ('2')")

    with pytest.raises(MarkerNotWritten):
        asyncio.run(handle(HeldMessage("T", b"x", message_id="1")))
    assert orders(lambda: sqlite3.connect(file)) == []
