"""Messages that are handled once, with SQLite."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from escrowmq.client.core.redelivery import NEVER
from escrowmq.integrations.dbapi.inbox import consume_once
from escrowmq.integrations.outbox import schema
from escrowmq.integrations.outbox.tables import SqlFamily

Connect = Callable[[], sqlite3.Connection]


@pytest.fixture
def connect(tmp_path: Path) -> Connect:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "shop.db")

    connection = connect()
    for statement in schema.statements(SqlFamily.SQLITE):
        connection.execute(statement.text)
    connection.close()
    return connect


def delivered(message_id: str) -> Any:
    ticket = SimpleNamespace(is_settled=False, level=None)
    return SimpleNamespace(message_id=message_id, topic="T", group="g", ticket=ticket)


def give_back(message: Any, level: int | None) -> None:
    message.ticket.is_settled, message.ticket.level = True, level


def test_a_message_that_its_handler_lets_come_again_reaches_it_again(connect: Connect) -> None:
    """It was noted as handled when the handler returned, and what came again was passed over."""
    seen: list[str] = []

    @consume_once(connect)
    def handle(messages: list[Any], connection: sqlite3.Connection) -> None:
        for message in messages:
            seen.append(message.message_id)
            if message.message_id == "later" and seen.count("later") == 1:
                give_back(message, 3)
            if message.message_id == "dead":
                give_back(message, NEVER)

    for _ in range(3):
        handle([delivered(name) for name in ("one", "later", "dead")])
    assert seen == ["one", "later", "dead", "later"]


def test_nor_is_it_noted_where_connections_are_awaited(connect: Connect, tmp_path: Path) -> None:
    aiosqlite = pytest.importorskip("aiosqlite")
    seen: list[str] = []

    @consume_once(lambda: aiosqlite.connect(tmp_path / "shop.db"))
    async def handle(message: Any, connection: Any) -> None:
        seen.append(message.message_id)
        if len(seen) == 1:
            give_back(message, 0)

    async def go() -> None:
        for _ in range(3):
            await handle(delivered("m"))

    asyncio.run(go())
    assert seen == ["m", "m"]
