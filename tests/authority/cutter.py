"""A way to a server that is cut at a request: before the server gets it, or before its answer
arrives. It counts connections, and can answer with an HTTP error itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Final

MESSAGE: Final = "etcdserver: no leader"
_HEAD_END: Final = b"\r\n\r\n"


class Cutter:
    """Forwards connections to a server. `plan` says what happens to the next ones, each with one
    request: "" (forward), "before", "after" (the answer is dropped), "stall" (nothing is answered),
    or an answer, such as "503 Service Unavailable" with `MESSAGE`, or "400 Bad Request|another"."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self.port = 0
        self.plan: list[str] = []
        self.requests: list[bytes] = []
        """First lines."""
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Cutter]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._serve(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await _request(reader)
        self.requests.append(request.partition(b"\r\n")[0])
        step = self.plan.pop(0) if self.plan else ""
        if step == "before":
            return
        if step == "stall":
            await asyncio.Event().wait()
        if step not in ("", "after"):
            status, _, message = step.partition("|")
            body = json.dumps({"message": message or MESSAGE}).encode()
            # Closed without a word, the connection would be used for the client's next request.
            head = f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            await writer.drain()
            return
        answer = await self._forwarded(request)
        if step == "":
            writer.write(answer)
            await writer.drain()

    async def _forwarded(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        try:
            head, _, body = request.partition(_HEAD_END)
            # Clients that keep connections have the next request on another one.
            writer.write(head + b"\r\nConnection: close" + _HEAD_END + body)
            return await reader.read()
        finally:
            writer.transport.abort()


async def _request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(_HEAD_END)
    length = 0
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    return head + await reader.readexactly(length)
