"""One connection for many blocks, some of which are cancelled: none may leave its transaction to
the next one, which would commit its changes without its messages."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiosqlite
import asyncpg
import psycopg
import pytest

import escrowmq
from escrowmq.integrations.dbapi import AsyncOutbox
from escrowmq.testing import Broker

from .conftest import Place
from .test_dbapi import TABLE, Connect
from .test_hard import CancelledAt

TURNS = 5


@asynccontextmanager
async def held(connection: aiosqlite.Connection) -> AsyncIterator[None]:
    """Hold the thread of a connection inside the block; behind it, all that waited is done."""
    release = threading.Event()
    await connection.create_function("hold", 0, release.wait)
    holding = asyncio.create_task(connection.execute_fetchall("select hold()"))
    await turns()
    try:
        yield
    finally:
        release.set()
        await holding
        await connection.execute_fetchall("select 1")


@asynccontextmanager
async def outbox_on(make: Connect) -> AsyncIterator[AsyncOutbox]:
    async with escrowmq.aio.Producer(group="shop", topics=["T"]) as producer:
        outbox = AsyncOutbox(producer, make)
        await outbox.create_tables()
        yield outbox
        await producer.flush()


async def turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


def test_a_rollback_is_finished_although_it_is_cancelled(
    escrowmq_broker: Broker, tmp_path: Path
) -> None:
    async def go() -> None:
        make: Connect = lambda: aiosqlite.connect(tmp_path / "shop.db")  # noqa: E731
        async with outbox_on(make) as outbox, make() as connection:
            await connection.execute(TABLE)
            inside = asyncio.Event()

            async def order() -> None:
                async with outbox.transaction(connection) as tx:
                    await connection.execute("insert into orders values ('never')")
                    await tx.send("T", b"never")
                    inside.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(order())
            await inside.wait()
            async with held(connection):
                for _ in range(2):
                    task.cancel()
                    await turns()
                assert not task.done()
            await asyncio.wait([task])
            assert task.cancelled()
            assert not connection.in_transaction
            await connection.commit()
            assert not await connection.execute_fetchall("select * from orders")

    asyncio.run(go())
    assert escrowmq_broker.delivered("T") == []


def test_a_block_whose_beginning_is_cancelled_leaves_no_transaction(
    escrowmq_broker: Broker, tmp_path: Path
) -> None:
    async def go() -> None:
        make: Connect = lambda: aiosqlite.connect(tmp_path / "shop.db")  # noqa: E731
        async with outbox_on(make) as outbox, make() as connection:
            async with held(connection):
                task = asyncio.create_task(outbox.transaction(connection).__aenter__())
                await turns()
                task.cancel()
                await turns()
            await asyncio.wait([task])
            assert task.cancelled()
            assert not connection.in_transaction
            async with outbox.transaction(connection) as tx:
                await tx.send("T", b"1")

    asyncio.run(go())
    assert escrowmq_broker.delivered("T") == [b"1"]


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
@pytest.mark.parametrize("times", [1, 2])
def test_after_a_cancellation_at_any_moment_a_connection_is_as_before(
    escrowmq_broker: Broker, new_place: Callable[[str], Place], driver: str, times: int
) -> None:
    """asyncpg's was left in a transaction if its BEGIN was cancelled: each later block raised."""
    address = new_place("postgresql").address
    make: Connect = (
        (lambda: psycopg.AsyncConnection.connect(address))
        if driver == "psycopg"
        else (lambda: asyncpg.connect(address))
    )

    async def go() -> None:
        async with outbox_on(make) as outbox:
            connection = await make()

            async def order(body: str) -> None:
                nonlocal connection
                if getattr(connection, "closed", False):  # psycopg does that, in doubt
                    connection = await make()
                async with outbox.transaction(connection) as tx:
                    await connection.execute(f"insert into orders values ('{body}')")
                    await tx.send("T", body.encode())

            await connection.execute(TABLE)
            if driver == "psycopg":
                await connection.commit()
            await order("first")
            counted = CancelledAt(order("second"), 0)
            await counted
            for at in range(1, counted.count + 1):

                async def cancelled(at: int = at) -> None:
                    await CancelledAt(order(f"{at}"), at, times=times)

                task = asyncio.create_task(cancelled())
                await asyncio.wait([task])
                await order(f"after {at}")
            await connection.close()
            await escrowmq_broker.aio.check_now()

    asyncio.run(go())
    with psycopg.connect(address) as connection:
        found = [row[0] for row in connection.execute("select id from orders")]
    assert sorted(body.decode() for body in escrowmq_broker.delivered("T")) == sorted(found)


def test_a_connection_that_a_cancellation_has_closed_is_called_closed(
    escrowmq_broker: Broker, postgres_address: str
) -> None:
    """The text was that it is in a transaction already."""

    async def go() -> None:
        make: Connect = lambda: psycopg.AsyncConnection.connect(postgres_address)  # noqa: E731
        async with outbox_on(make) as outbox:
            connection = await make()
            with pytest.raises(psycopg.OperationalError):
                async with connection.transaction():
                    await connection.close()
                    await connection.execute("select 1")
            with pytest.raises(psycopg.OperationalError, match="closed"):
                async with outbox.transaction(connection):
                    await connection.execute("select 1")

    asyncio.run(go())
    assert escrowmq_broker.delivered("T") == []
