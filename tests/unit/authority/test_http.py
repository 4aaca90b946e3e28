"""One request on one connection: whole answers, or an error."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

import pytest

from escrowmq.authority import http
from escrowmq.authority.http import ServerAddress, ServerAnswer, ServerRequest, exchange
from escrowmq.errors import RemoteProtocolError

REQUEST = ServerRequest("POST", "/v3/kv/range", {"Content-Type": "application/json"}, b"{}")


async def answered(data: bytes) -> tuple[ServerAnswer, bytes]:
    """What a server's bytes are as an answer; and the request that it got."""
    heard = b""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal heard
        heard = await reader.readuntil(b"{}")
        writer.write(data[:1])
        await writer.drain()
        writer.write(data[1:])
        await writer.drain()

    return await with_server(serve), heard


async def with_server(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    timeout_s: float = 5.0,
) -> ServerAnswer:
    served = asyncio.Event()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)
            served.set()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    host = ServerAddress("127.0.0.1", server.sockets[0].getsockname()[1])
    try:
        return await exchange(host, REQUEST, timeout_s=timeout_s)
    finally:
        server.close()
        await served.wait()


@pytest.mark.parametrize(
    ("data", "status", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", 200, b"abc"),
        (b"HTTP/1.1 200 OK\r\ncontent-length:3\r\n\r\nabcde", 200, b"abc"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n",
         200, b"abc"),
        (b"HTTP/1.0 503 Unavailable\r\n\r\nno leader", 503, b"no leader"),
        (b"HTTP/1.1 204 No Content\r\n\r\nabc", 204, b""),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200\r\nContent-Length: 1\r\n\r\nx", 200, b"x"),
    ],
)  # fmt: skip
def test_an_answer_is_read_whole(data: bytes, status: int, body: bytes) -> None:
    answer, heard = asyncio.run(answered(data))
    assert answer == ServerAnswer(status, body)
    assert heard.startswith(b"POST /v3/kv/range HTTP/1.1\r\nHost: 127.0.0.1:")
    assert heard.endswith(b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "ended in the middle of a response"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", "ended in the middle of a response"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
            "ended in the middle",
        ),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n", "a chunk"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff0000000\r\n", "bytes of body"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "'-1' bytes of body"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", "'99999999' bytes of body"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "'SSH-2.0-OpenSSH' is not the beginning"),
        (b"SSH-2.0 200 OK\r\n\r\n", "is not the beginning"),
        (b"HTTP/1.1 OK\r\n\r\n", "is not the beginning"),
        (b"HTTP/1.1\r\n\r\n", "is not the beginning"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * http.HEAD_SIZE_MAX, "a head of more than"),
    ],
)
def test_anything_else_is_an_error(data: bytes, said: str) -> None:
    with pytest.raises(RemoteProtocolError, match=re.escape(said)):
        asyncio.run(answered(data))


def test_bodies_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "BODY_SIZE_MAX", 5)
    head = b"HTTP/1.1 200 OK\r\n"
    chunks = head + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n3\r\nabc\r\n0\r\n\r\n"
    for data in (head + b"\r\nabcdef", chunks):
        with pytest.raises(RemoteProtocolError, match="'6' bytes of body"):
            asyncio.run(answered(data))
    answer, _ = asyncio.run(answered(head + b"\r\nabcde"))
    assert answer.body == b"abcde"


def test_a_body_without_an_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nabcdef")
        await reader.read()

    monkeypatch.setattr(http, "BODY_SIZE_MAX", 5)
    with pytest.raises(RemoteProtocolError, match="'6' bytes of body"):
        asyncio.run(with_server(serve, timeout_s=2))


def test_a_server_that_says_nothing_is_not_waited_for() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab")
        await reader.read()

    with pytest.raises(TimeoutError):
        asyncio.run(with_server(serve, timeout_s=0.1))


def test_a_header_cannot_end_its_line() -> None:
    with pytest.raises(AssertionError, match="one line"):
        ServerRequest("GET", "/", {"Authorization": "x\r\nY: z"}).encode(ServerAddress("h", 1))


def test_an_address_is_written_as_usual() -> None:
    assert str(ServerAddress("127.0.0.1", 2379)) == "127.0.0.1:2379"
    assert str(ServerAddress("::1", 2379)) == "[::1]:2379"
