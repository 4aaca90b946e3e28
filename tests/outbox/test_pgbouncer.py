"""Behind PgBouncer in transaction mode, where the next transaction may get another connection."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

import escrowmq
from escrowmq.integrations.dbapi import AsyncOutbox
from escrowmq.integrations.sqlalchemy import Outbox
from tests.compensation.services import PostgresServer
from tests.interop.process import until
from tests.interop.servers import Server
from tests.sdk.reading import bodies, wait_bodies

from .test_sqlalchemy import Base, Order, orders, producer

__all__ = ["producer"]

CONFIGURATION = """
[databases]
* = host={server} user=shop
[pgbouncer]
listen_addr =
unix_socket_dir = {folder}
listen_port = 6432
auth_type = any
pool_mode = transaction
default_pool_size = 2
max_client_conn = 100
ignore_startup_parameters = extra_float_digits
"""


@pytest.fixture
def bouncer(postgres: PostgresServer, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Makes of a database's address that of the same database behind PgBouncer."""
    if shutil.which("pgbouncer") is None:
        pytest.skip("not on this machine: pgbouncer")
    folder = Path(str(psycopg.conninfo.conninfo_to_dict(postgres.url)["host"]))
    file = folder / "pgbouncer.ini"
    file.write_text(CONFIGURATION.format(server=folder, folder=folder))
    user = ["-u", "nobody"] if os.getuid() == 0 else []
    with (tmp_path / "pgbouncer.err").open("wb") as errors:
        child = subprocess.Popen(["pgbouncer", *user, str(file)], stdout=errors, stderr=errors)
    until("PgBouncer listens", (folder / ".s.PGSQL.6432").exists)
    yield lambda address: f"{address}&port=6432"
    child.terminate()
    child.wait(30)


def test_many_threads_share_two_connections(
    server: Server,
    topic: str,
    producer: escrowmq.Producer,
    postgres: PostgresServer,
    bouncer: Callable[[str], str],
) -> None:
    rest = bouncer(postgres.new_database()).partition("://")[2]
    engine = sa.create_engine(
        f"postgresql+psycopg://{rest}", poolclass=NullPool, connect_args={"prepare_threshold": None}
    )
    Base.metadata.create_all(engine)
    outbox = Outbox(producer, engine)
    outbox.create_tables()

    def order(number: int) -> None:
        with Session(engine) as session, outbox.transaction(session) as tx:
            session.add(Order(id=str(number)))
            tx.send(topic, str(number).encode())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(order, range(40)))
    with engine.begin() as connection:  # nobody tells the broker, so that it asks
        connection.execute(sa.insert(Order).values(id="asked"))
        outbox.send(connection, topic, b"asked")
    until("the end of all", lambda: not producer.unsettled_keys())
    assert [body.decode() for body in bodies(server, topic)] == orders(engine)


def test_asyncpg_needs_no_more_there_than_it_does_anyway(
    server: Server,
    topic: str,
    group: str,
    postgres: PostgresServer,
    bouncer: Callable[[str], str],
) -> None:
    address = bouncer(postgres.new_database())

    async def connect() -> Any:
        return await asyncpg.connect(address, statement_cache_size=0)

    async def go() -> None:
        async with escrowmq.aio.Producer(server.nameserver, group=group) as producer:
            outbox = AsyncOutbox(producer, connect)
            await outbox.create_tables()

            async def order(number: int) -> None:
                connection = await connect()
                async with outbox.transaction(connection) as tx:
                    await tx.send(topic, str(number).encode())
                await connection.close()

            await asyncio.gather(*(order(number) for number in range(10)))

    asyncio.run(go())
    wait_bodies(server, topic, sorted(str(number).encode() for number in range(10)))
