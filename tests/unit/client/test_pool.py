"""Connections that end, or cannot be greeted, before anybody has used them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from escrowmq.client.connection import Connection
from escrowmq.client.pool import Pool
from escrowmq.errors import ConnectFailed, UsageError
from escrowmq.net import dialling

from .peer import a_peer

HOST = dialling.INSIDE + "77"


def a_pool(greet: Callable[[Connection], None], lost: Callable[[Connection], None]) -> Pool:
    return Pool(
        tls=None,
        connect_timeout_s=5.0,
        decorate=lambda fields, body: fields,
        serve=lambda connection, command: None,
        greet=greet,
        lost=lost,
    )


class Bounded(asyncio.Transport):
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


def closes_at_once(protocol: asyncio.BaseProtocol) -> None:
    """A gate behind which nobody stays."""
    protocol.connection_made(Bounded())
    protocol.connection_lost(None)


def test_a_connection_that_is_lost_while_it_is_dialled_is_not_kept() -> None:
    """It stayed for good in the set of all, and close() waited for its end."""
    greeted: list[Any] = []
    lost: list[Any] = []

    async def go() -> None:
        pool = a_pool(greeted.append, lost.append)
        dialling.open_gate(HOST, 1, closes_at_once)
        try:
            with pytest.raises(ConnectFailed, match=f"no connection to {HOST}:1: the peer closed"):
                await pool.get(f"{HOST}:1")
        finally:
            dialling.close_gate(HOST, 1)
        assert (greeted, len(lost)) == ([], 1)
        assert pool.connected() == []
        assert not pool._all
        await pool.close()

    asyncio.run(go())


def test_a_connection_that_could_not_be_greeted_is_not_used() -> None:
    """Whoever came next was given it, and the broker had never heard who is there."""
    refusals = [UsageError("too much is under way")]
    greeted: list[Connection] = []

    def greet(connection: Connection) -> None:
        if refusals:
            raise refusals.pop()
        greeted.append(connection)

    async def go() -> None:
        async with a_peer() as peer:
            pool = a_pool(greet, lambda connection: None)
            with pytest.raises(UsageError, match="too much"):
                await pool.get(peer.address)
            assert pool.ready(peer.address) is None
            assert await pool.get(peer.address) in greeted
            await pool.close()
            assert not pool._all

    asyncio.run(go())
