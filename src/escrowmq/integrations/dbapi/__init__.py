"""Sends messages exactly if a database transaction commits, for connections without an ORM:
psycopg, sqlite3, PyMySQL, mysqlclient and MariaDB's driver with `Outbox`; psycopg's asyncio,
asyncpg and aiosqlite with `AsyncOutbox`. `docs/outbox.md` is the guide.

    outbox = Outbox(producer, lambda: psycopg.connect(address))
    with outbox.transaction(connection) as tx:
        connection.execute("insert into orders ...")
        tx.send("paid", b"order 1", keys=["o-1"])
"""

from escrowmq.integrations.dbapi.async_outbox import AsyncOutbox, AsyncTransaction
from escrowmq.integrations.dbapi.inbox import consume_once
from escrowmq.integrations.dbapi.outbox import Outbox, Transaction

__all__ = ["AsyncOutbox", "AsyncTransaction", "Outbox", "Transaction", "consume_once"]
