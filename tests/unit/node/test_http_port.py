"""What the http port serves where the console is not installed, and when its server is made."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable

import pytest

from escrowmq.errors import ConnectFailed
from escrowmq.net.incoming_connections import bind_port
from escrowmq.node.http_port import NO_PORT, HttpPort, bind_http, server_factory

HOST = "127.0.0.1"


class FakeVitals:
    """A server that is as the test says."""

    def __init__(self) -> None:
        self.why = ""
        self.alive = True

    def metrics_text(self, accept: str) -> tuple[bytes, str]:
        return f"depth 3\n# {accept}".encode(), "text/plain; version=0.0.4"

    def unready_reason(self) -> str:
        if not self.alive:
            raise TimeoutError
        return self.why

    def is_alive(self) -> bool:
        return self.alive


def fetch(port: int, path: str) -> tuple[int, str, str]:
    """Status, media type and text."""
    connection = http.client.HTTPConnection(HOST, port, timeout=10)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type", ""), answer.read().decode()


async def asked(port: int, path: str) -> tuple[int, str, str]:
    return await asyncio.to_thread(fetch, port, path)


@contextlib.asynccontextmanager
async def opened(vitals: FakeVitals, made: Callable[[], None] = lambda: None) -> AsyncIterator[int]:
    def tell() -> FakeVitals:
        made()
        return vitals

    door = bind_http(HOST, 0, default=None)
    assert door is not None
    port = HttpPort(door, server_factory(tell, None))
    port.open()
    try:
        yield port.port
    finally:
        await port.close()


def test_probes_say_how_the_server_is() -> None:
    async def main() -> None:
        vitals = FakeVitals()
        async with opened(vitals) as port:
            assert (await asked(port, "/healthz"))[::2] == (200, "alive\n")
            assert (await asked(port, "/readyz"))[::2] == (200, "ready\n")
            assert (await asked(port, "/metrics"))[:2] == (200, "text/plain; version=0.0.4")
            vitals.why = "read-only: the disk is full"
            assert (await asked(port, "/readyz"))[::2] == (503, "read-only: the disk is full\n")
            assert (await asked(port, "/healthz"))[0] == 200
            vitals.alive = False
            for path in ("/healthz", "/readyz"):
                status, _, text = await asked(port, path)
                assert (status, "has not answered" in text) == (503, True)

    asyncio.run(main())


def test_what_needs_the_extra_says_how_to_have_it() -> None:
    async def main() -> None:
        async with opened(FakeVitals()) as port:
            status, _, text = await asyncio.to_thread(fetch, port, "/topics")
            assert (status, "pip install 'escrowmq[console]'" in text) == (501, True)
            status, kind, text = await asyncio.to_thread(fetch, port, "/api/v1/topics")
            assert (status, kind) == (501, "application/json")
            assert json.loads(text)["code"] == "not_installed"

    asyncio.run(main())


def test_nothing_is_made_before_somebody_calls() -> None:
    made: list[str] = []

    async def main() -> None:
        async with opened(FakeVitals(), lambda: made.append(threading.current_thread().name)):
            await asyncio.sleep(0)
        assert made == []
        async with opened(FakeVitals(), lambda: made.append(threading.current_thread().name)) as p:
            await asyncio.to_thread(fetch, p, "/healthz")
        assert made == ["http"]

    asyncio.run(main())


def test_a_server_that_cannot_be_made_closes_the_door_and_ends_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> None:
        raise RuntimeError("no templates")

    async def main() -> None:
        async with opened(FakeVitals(), fail) as port:
            with pytest.raises((OSError, http.client.HTTPException)):
                await asyncio.to_thread(fetch, port, "/healthz")

    asyncio.run(main())
    assert "the http port is closed" in caplog.text


@pytest.mark.parametrize(("wanted", "default"), [(NO_PORT, 8082), (NO_PORT, None), (None, None)])
def test_no_port_is_opened_where_none_is_wanted(wanted: int | None, default: int | None) -> None:
    assert bind_http(HOST, wanted, default=default) is None


def test_a_port_that_was_asked_for_must_be_free_and_a_default_one_need_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with bind_port(HOST, 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConnectFailed, match="Address already in use"):
            bind_http(HOST, port, default=None)
        assert bind_http(HOST, None, default=port) is None
    assert "--http-port" in caplog.text


def test_half_a_request_keeps_nobody_from_the_probes() -> None:
    async def main() -> None:
        async with opened(FakeVitals()) as port:
            with contextlib.ExitStack() as halves:
                for _ in range(20):
                    half = halves.enter_context(socket.create_connection((HOST, port)))
                    half.sendall(b"GET /healthz HTTP/1.1\r\n")
                assert (await asyncio.to_thread(fetch, port, "/healthz"))[0] == 200

    asyncio.run(main())
