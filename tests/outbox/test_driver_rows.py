"""Connections that are set up to return rows in another form than as tuples."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any

import aiosqlite
import psycopg
import pymysql
import pytest
from psycopg.rows import dict_row, scalar_row

import escrowmq
from escrowmq.integrations.dbapi import AsyncOutbox, Outbox
from escrowmq.integrations.outbox.kept import KeptStatus
from tests.interop.servers import Server
from tests.sdk.reading import wait_bodies

from .conftest import Place


def dict_factory(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


def dict_connection(place: Place) -> Any:
    if place.kind == "sqlite":
        connection = sqlite3.connect(place.address)
        connection.row_factory = dict_factory
        return connection
    if place.kind == "postgresql":
        return psycopg.connect(place.address, row_factory=dict_row)
    return pymysql.connect(
        unix_socket=place.address, user="root", database=place.name,
        cursorclass=pymysql.cursors.DictCursor,
    )  # fmt: skip


async def dict_connection_async(place: Place) -> Any:
    if place.kind == "sqlite":
        connection = await aiosqlite.connect(place.address)
        connection.row_factory = dict_factory  # type: ignore[assignment]
        return connection
    return await psycopg.AsyncConnection.connect(place.address, row_factory=dict_row)


def test_rows_as_dictionaries_do_not_confuse_an_outbox(
    server: Server, topic: str, group: str, place: Place
) -> None:
    """It took the names of columns for their values: a new database was refused, and the database
    of an older one was not recognised, so that checks were answered with UNKNOWN."""
    check_blocking(server, topic, group, lambda: dict_connection(place))


@pytest.mark.parametrize("place", ["postgresql"], indirect=True)
def test_rows_that_are_no_sequences_do_not_confuse_an_outbox(
    server: Server, topic: str, group: str, place: Place
) -> None:
    check_blocking(
        server, topic, group, lambda: psycopg.connect(place.address, row_factory=scalar_row)
    )


def check_blocking(server: Server, topic: str, group: str, connect: Callable[[], Any]) -> None:
    with escrowmq.Producer(server.nameserver, group=group) as producer:
        outbox = Outbox(producer, connect)
        outbox.create_tables()
        assert len(outbox.find_name()) == 32
        connection = connect()
        with outbox.transaction(connection) as tx:
            tx.send(topic, b"1")
        connection.close()
        assert outbox.kept() == KeptStatus(count=0, size=0, oldest_ms=0)
        wait_bodies(server, topic, [b"1"])
        # Of another process: its checks find the marker.
        assert Outbox(producer, connect).find_name() == outbox.find_name()


@pytest.mark.parametrize("place", ["sqlite", "postgresql"], indirect=True)
def test_rows_as_dictionaries_do_not_confuse_an_asyncio_outbox(
    server: Server, topic: str, group: str, place: Place
) -> None:
    async def go() -> None:
        async with escrowmq.aio.Producer(server.nameserver, group=group) as producer:
            outbox = AsyncOutbox(producer, lambda: dict_connection_async(place))
            await outbox.create_tables()
            assert len(await outbox.find_name()) == 32
            connection = await dict_connection_async(place)
            async with outbox.transaction(connection) as tx:
                await tx.send(topic, b"1")
            await connection.close()
            assert await outbox.kept() == KeptStatus(count=0, size=0, oldest_ms=0)

    asyncio.run(go())
    wait_bodies(server, topic, [b"1"])
