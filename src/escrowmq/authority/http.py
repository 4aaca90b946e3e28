"""Sends one HTTP/1.1 request on a connection of its own. An authority gets at most two requests a
second, so no connection is kept. So none can be dead without notice, and no request waits for
another one's answer."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Final

import msgspec

from escrowmq.errors import RemoteProtocolError

HEAD_SIZE_MAX: Final = 64 << 10
BODY_SIZE_MAX: Final = 4 << 20
CONNECT_SHARE: Final = 0.5
"""The share of a request's timeout that connecting may take. A machine that is off does not answer
at all; so another server is tried sooner."""
_LINE_SIZE_MAX: Final = 1 << 10
_INFORMATIONAL: Final = range(100, 200)
_WITHOUT_BODY: Final = (204, 304)


class ServerAddress(msgspec.Struct, frozen=True):
    """A server's address."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ServerAnswer(msgspec.Struct, frozen=True):
    """A server's answer."""

    status: int
    body: bytes


class ServerRequest(msgspec.Struct, frozen=True):
    """A request with a body, which may be empty."""

    method: str
    path: str
    headers: Mapping[str, str] = {}
    body: bytes = b""

    def encode(self, host: ServerAddress) -> bytes:
        """Encode the request."""
        lines = [f"{self.method} {self.path} HTTP/1.1", f"Host: {host}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        lines += [f"Content-Length: {len(self.body)}", "", ""]
        assert not any("\r" in line or "\n" in line for line in lines), "a header is one line"
        return "\r\n".join(lines).encode() + self.body


async def exchange(
    host: ServerAddress,
    request: ServerRequest,
    *,
    timeout_s: float,
    tls: ssl.SSLContext | None = None,
) -> ServerAnswer:
    """Send a request and return the complete answer. Raises OSError (TimeoutError included) or
    RemoteProtocolError; the server may nevertheless have processed the request."""
    async with asyncio.timeout(timeout_s):
        async with asyncio.timeout(timeout_s * CONNECT_SHARE):
            reader, writer = await asyncio.open_connection(
                host.host, host.port, ssl=tls, limit=HEAD_SIZE_MAX
            )
        try:
            writer.write(request.encode(host))
            await writer.drain()
            return await _read_answer(reader)
        except asyncio.IncompleteReadError as error:
            raise RemoteProtocolError("the connection ended in the middle of a response") from error
        except asyncio.LimitOverrunError as error:
            raise RemoteProtocolError(f"a head of more than {HEAD_SIZE_MAX} bytes") from error
        finally:
            # The answer is complete or useless; a clean end of TLS would wait for the server.
            writer.transport.abort()


async def _read_answer(reader: asyncio.StreamReader) -> ServerAnswer:
    status, headers = await _read_head(reader)
    while status in _INFORMATIONAL:
        status, headers = await _read_head(reader)
    if status in _WITHOUT_BODY:
        return ServerAnswer(status, b"")
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return ServerAnswer(status, await _read_chunks(reader))
    length = headers.get("content-length")
    if length is not None:
        return ServerAnswer(status, await reader.readexactly(_parse_size(length, base=10)))
    body = await reader.read(BODY_SIZE_MAX + 1)
    while len(body) <= BODY_SIZE_MAX and (more := await reader.read(BODY_SIZE_MAX)):
        body += more
    _parse_size(str(len(body)), base=10)
    return ServerAnswer(status, body)


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    parts = first.split(" ", 2)
    if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not parts[1].isdecimal():
        raise RemoteProtocolError(f"{first[:80]!r} is not the beginning of an HTTP/1.1 response")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return int(parts[1]), headers


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while True:
        line = await reader.readuntil(b"\r\n")
        size = _parse_size(line[:_LINE_SIZE_MAX].decode("latin-1").partition(";")[0], base=16)
        if not size:
            return bytes(body)
        _parse_size(str(len(body) + size), base=10)
        body += await reader.readexactly(size)
        if await reader.readexactly(2) != b"\r\n":
            raise RemoteProtocolError("a chunk that is longer than its size says")


def _parse_size(text: str, *, base: int) -> int:
    try:
        size = int(text.strip(), base)
    except ValueError:
        size = -1
    if not 0 <= size <= BODY_SIZE_MAX:
        raise RemoteProtocolError(f"{text[:40]!r} bytes of body; 0..{BODY_SIZE_MAX} are allowed")
    return size
