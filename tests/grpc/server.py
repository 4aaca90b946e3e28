"""A tiny server on a thread of its own: what a shell does around the room `http2`, and a service
with a method of each kind.

    /t/Echo     unary: the same again
    /t/Split    one message in, its parts out
    /t/Chat     each message again, at once
    /t/Count    many in, the number of their bytes out
    /t/Never    no answer; who cancels is noted
    /t/Refuse   PERMISSION_DENIED, with the message as text
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from escrowmq.base.fixed_limits import LONG_MAX
from escrowmq.http2.connection import Http2Connection
from escrowmq.http2.events import StreamData, StreamOpened
from escrowmq.http2.grpc_connection import (
    CallCancelled,
    CallDrained,
    CallEvent,
    CallMessage,
    CallStarted,
    ClientDone,
    GrpcConnection,
    WholeCall,
)
from escrowmq.http2.grpc_metadata import HEADERS, GrpcStatus, encode_trailers
from escrowmq.http2.limits import Http2Limits

PART_SIZE = 100_000


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Link(asyncio.Protocol):
    """One client: feed, then perform."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.calls = GrpcConnection(server.limits)
        self.paths: dict[int, str] = {}
        self.counts: dict[int, int] = {}
        self.parts: dict[int, list[bytes]] = {}
        self.transport: asyncio.Transport
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.server.links.append(self)
        self.perform([])

    def data_received(self, data: bytes) -> None:
        self.perform(self.calls.receive(data, now_ms()))

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.links.remove(self)
        self.perform(self.calls.end_all())

    def perform(self, events: list[CallEvent]) -> None:
        for event in events:
            self.on_event(event)
        if not self.transport.is_closing():
            self.transport.writelines(self.calls.take_bytes())
            if self.calls.is_over:
                self.transport.close()
        if self.timer is not None:
            self.timer.cancel()
        if self.calls.wake_at_ms < LONG_MAX:
            delay_s = max(0, self.calls.wake_at_ms - now_ms()) / 1000
            self.timer = asyncio.get_running_loop().call_later(delay_s, self.wake)

    def wake(self) -> None:
        self.perform(self.calls.wake(now_ms()))

    def go_away(self) -> None:
        self.calls.shut_down()
        self.perform([])

    def on_event(self, event: CallEvent) -> None:
        match event:
            case WholeCall():
                self.on_event(CallStarted(event.call, event.path, event.metadata, event.due_ms))
                self.on_event(CallMessage(event.call, event.data))
                self.on_event(ClientDone(event.call))
            case CallStarted():
                self.paths[event.call] = event.path
                self.server.heard.put(event)
                if event.path.rpartition("/")[2] not in METHODS:
                    self.calls.end_call(event.call, GrpcStatus.UNIMPLEMENTED, f"no {event.path}")
            case CallMessage() if self.calls.is_open(event.call):
                METHODS[self.paths[event.call].rpartition("/")[2]](self, event)
            case ClientDone():
                self.on_half_closed(event.call)
            case CallCancelled():
                self.server.heard.put(event)
            case CallDrained():
                if event.call in self.parts:  # else nobody waits for room: chats go on
                    self.send_parts(event.call)
            case CallMessage():  # its call has ended meanwhile
                pass

    def on_half_closed(self, call: int) -> None:
        path = self.paths.get(call, "")
        if path == "/t/Chat":
            self.calls.end_call(call)
        elif path == "/t/Count":
            self.calls.send_answer(call, b"%d" % self.counts.get(call, 0))

    def echo(self, message: CallMessage) -> None:
        self.calls.send_answer(message.call, message.data)

    def chat(self, message: CallMessage) -> None:
        self.calls.send_message(message.call, message.data)

    def count(self, message: CallMessage) -> None:
        self.counts[message.call] = self.counts.get(message.call, 0) + len(message.data)

    def never(self, message: CallMessage) -> None:
        pass

    def refuse(self, message: CallMessage) -> None:
        self.calls.end_call(message.call, GrpcStatus.PERMISSION_DENIED, message.data.decode())

    def split(self, message: CallMessage) -> None:
        data = message.data
        self.parts[message.call] = [
            data[at : at + PART_SIZE] for at in range(0, len(data), PART_SIZE)
        ]
        self.send_parts(message.call)

    def send_parts(self, call: int) -> None:
        parts = self.parts.get(call, [])
        while parts:
            self.server.kept_size_max = max(self.server.kept_size_max, self.calls.buffered_size)
            if not self.calls.send_message(call, parts.pop(0)):
                return
        self.calls.end_call(call)


METHODS: dict[str, Callable[[Link, CallMessage], None]] = {
    "Echo": Link.echo,
    "Chat": Link.chat,
    "Count": Link.count,
    "Never": Link.never,
    "Refuse": Link.refuse,
    "Split": Link.split,
}


class Plain(asyncio.Protocol):
    """HTTP/2 without gRPC: every request gets the same answer."""

    def __init__(self, server: Server) -> None:
        self.connection = Http2Connection(server.limits)
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.data_received(b"")

    def data_received(self, data: bytes) -> None:
        for event in self.connection.receive(data, now_ms()):
            if isinstance(event, StreamOpened | StreamData) and event.is_end:
                self.connection.send_data(
                    event.stream_id,
                    headers=HEADERS,
                    data=b"hello",
                    trailers=encode_trailers(GrpcStatus.OK),
                )
        self.transport.writelines(self.connection.take_bytes())
        if self.connection.is_over:
            self.transport.close()


class Server:
    """Listens on a port that the system picks."""

    def __init__(self, limits: Http2Limits | None = None, *, is_plain: bool = False) -> None:
        self.limits = limits
        self.heard: queue.Queue[CallEvent] = queue.Queue()
        self.links: list[Link] = []
        self.kept_size_max = 0
        self.port = 0
        self.loop = asyncio.new_event_loop()
        self._make = (lambda: Plain(self)) if is_plain else (lambda: Link(self))
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._stopped = asyncio.Event()
        server = await self.loop.create_server(self._make, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stopped.wait()
        server.close()
        for link in list(self.links):
            link.transport.abort()

    def start(self) -> None:
        self._ready = threading.Event()
        self._thread.start()
        assert self._ready.wait(10)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    def shut_down(self) -> None:
        """GOAWAY to all."""

        def run() -> None:
            for link in self.links:
                link.go_away()

        self.loop.call_soon_threadsafe(run)


@contextmanager
def serving(limits: Http2Limits | None = None, *, is_plain: bool = False) -> Iterator[Server]:
    server = Server(limits, is_plain=is_plain)
    server.start()
    try:
        yield server
    finally:
        server.stop()
