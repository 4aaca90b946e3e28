"""A name server and broker in one thread, which answers as a test says, over real sockets."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.base.message import Message
from escrowmq.client.core.routes import MessageQueue
from escrowmq.codec.command import encode_reply
from escrowmq.codec.frame import FrameReader
from escrowmq.codec.routes import BrokerData, QueueData, TopicRoute, encode_route
from tests.unit.pipeline.records import log_of

QUEUE = MessageQueue("t", "broker-a", 0)
Answer = Callable[[Command], bytes | None]


class ScriptedServer:
    """Answers each request with what `answer` returns; None closes the connection."""

    def __init__(self, answer: Answer) -> None:
        self.requests: list[Command] = []
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End it."""
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                link, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    def _serve(self, link: socket.socket) -> None:
        reader = FrameReader()
        with link, contextlib.suppress(OSError):
            while data := link.recv(1 << 16):
                for request in reader.read_commands(data):
                    self.requests.append(request)
                    answer = self._answer(request)
                    if answer is None:
                        return
                    link.sendall(answer)


class Broker:
    """One queue of one topic, with offsets from `low` on, of which a pull gets `limit` at most."""

    def __init__(self, *, low: int = 0, count: int = 100, limit: int = 32) -> None:
        self.low, self.limit = low, limit
        self.end = low + count
        self.holes: set[int] = set()
        """Offsets without a message."""
        self.script: list[Callable[[Command], bytes | None]] = []
        """What the next pulls are answered with, before any is answered as it should be."""
        self.server = ScriptedServer(self.answer)
        self.addresses = {0: self.server.address}
        """The addresses in the route, by broker id."""

    def answer(self, request: Command) -> bytes | None:
        """The reply to any request."""
        if request.code == Request.GET_ROUTEINFO_BY_TOPIC:
            route = TopicRoute(
                broker_datas=[BrokerData(self.addresses, "broker-a", "c")],
                queue_datas=[QueueData("broker-a", 6, 1, 0, 1)],
            )
            return encode_reply(request, 0, body=encode_route(route, is_standard=True))
        if request.code == Request.PULL_MESSAGE:
            return self.script.pop(0)(request) if self.script else self.pulled(request)
        return encode_reply(request, Response.REQUEST_CODE_NOT_SUPPORTED, remark="no")

    def pulled(self, request: Command) -> bytes:
        """A pull as brokers answer it."""
        ext = request.ext or {}
        at, count = int(ext["queueOffset"]), min(int(ext["maxMsgNums"]), self.limit)
        if not self.low <= at < self.end:
            code = Response.PULL_NOT_FOUND if at == self.end else Response.PULL_OFFSET_MOVED
            return self.reply(request, code, following=max(at, self.low))
        high = min(at + count, self.end)
        while high in self.holes:
            high += 1
        parts = [
            log_of([Message(topic="t", body=str(n).encode())], first=n, log_offset=n * 1_000)
            for n in range(at, high)
            if n not in self.holes
        ]
        if not parts:
            return self.reply(request, Response.PULL_RETRY_IMMEDIATELY, following=high)
        return self.reply(request, 0, following=high, body=b"".join(parts))

    def reply(self, request: Command, code: int, *, following: int, body: bytes = b"") -> bytes:
        """A pull's answer."""
        ext = {
            "nextBeginOffset": str(following),
            "minOffset": str(self.low),
            "maxOffset": str(self.end),
        }
        return encode_reply(request, code, ext=ext, body=body, remark=f"code {code}")
