"""Connections that end, or cannot be greeted, before anybody has used them."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import escrowmq
from escrowmq.client.connection import Connection
from escrowmq.client.pool import SILENT_BEFORE_PROBE_S, ConnectionPool
from escrowmq.errors import ConnectFailed, NoNameServer, RequestTimeout, UsageError
from escrowmq.net import dialling

from .peer import a_peer

HOST = dialling.TEST_ADDRESS_PREFIX + "77"


def a_pool(
    greet: Callable[[Connection], None], lost: Callable[[Connection], None]
) -> ConnectionPool:
    return ConnectionPool(
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
        dialling.register_inside_server(HOST, 1, closes_at_once)
        try:
            with pytest.raises(ConnectFailed, match=f"no connection to {HOST}:1: the peer closed"):
                await pool.get(f"{HOST}:1")
        finally:
            dialling.unregister_inside_server(HOST, 1)
        assert (greeted, len(lost)) == ([], 1)
        assert pool.usable_connections() == []
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
            assert pool.get_ready(peer.address) is None
            assert await pool.get(peer.address) in greeted
            await pool.close()
            assert not pool._all

    asyncio.run(go())


# -- other servers -----------------------------------------------------------------------------


@contextlib.contextmanager
def a_web_server() -> Iterator[str]:
    """It waits for the rest of a line, and says nothing meanwhile."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Quiet(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def test_a_web_server_at_the_port_is_named_before_the_messages_time_is_over() -> None:
    with a_web_server() as address, escrowmq.Producer(address, group="g") as producer:
        for _ in range(2):
            with pytest.raises(NoNameServer, match="it speaks HTTP and not RocketMQ's remoting"):
                producer.send("T", b"1")


def test_it_is_named_for_an_operator_too() -> None:
    with a_web_server() as address, pytest.raises(NoNameServer, match="it speaks HTTP"):
        escrowmq.Admin(address).topics.names()


def test_a_silent_peer_that_speaks_no_http_keeps_its_connection() -> None:
    """A broker that hangs is asked so too, and closes that connection."""
    asked: list[bytes] = []

    class Silent(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            asked.append(data)
            if data.startswith(b"GET"):
                self.transport.close()

    async def go() -> None:
        server = await asyncio.get_running_loop().create_server(Silent, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        pool = a_pool(lambda _: None, lambda _: None)
        connection = await pool.get(f"127.0.0.1:{port}")
        with pytest.raises(RequestTimeout):
            await connection.request(105, timeout_s=2 * SILENT_BEFORE_PROBE_S)
        assert any(each.startswith(b"GET / HTTP/1.0") for each in asked)
        assert connection.is_usable
        assert await pool.get(connection.address) is connection
        await pool.close()
        server.close()
        await server.wait_closed()

    asyncio.run(go())
