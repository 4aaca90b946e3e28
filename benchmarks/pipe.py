"""A connection that writes many requests ahead of their answers: load that one process can make."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

from escrowmq.base.codes import Flag, Request
from escrowmq.base.command import Command
from escrowmq.codec.command import encode_command
from escrowmq.codec.frame import FrameReader
from escrowmq.codec.ids import parse_offset_id

GROUP = "PG"


class Half:
    """What an END needs."""

    __slots__ = ("log_offset", "queue_offset", "unique_key")

    def __init__(self, reply: Command) -> None:
        ext = reply.ext or {}
        self.queue_offset = int(ext["queueOffset"])
        self.log_offset = parse_offset_id(ext["msgId"])[1]
        self.unique_key = ext["transactionId"]


class Pipe(asyncio.Protocol):
    """Requests out, answers in; what the broker asks goes to `on_request`."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.on_request: Callable[[Command], None] | None = None
        self._reader = FrameReader()
        self._waiting: dict[int, Callable[[Command], None]] = {}
        self._opaque = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        for command in self._reader.read_commands(data):
            if command.flag & Flag.REPLY:
                self._waiting.pop(command.opaque)(command)
            elif self.on_request is not None:
                self.on_request(command)

    @property
    def waiting_count(self) -> int:
        """Requests without an answer."""
        return len(self._waiting)

    def ask(
        self, code: int, ext: dict[str, str], body: bytes, answered: Callable[[Command], None]
    ) -> None:
        """Write one request."""
        self._opaque += 1
        self._waiting[self._opaque] = answered
        request = Command(code=code, opaque=self._opaque, version=479, ext=ext, body=body)
        request.is_binary = True
        assert self.transport is not None
        self.transport.write(encode_command(request))

    async def call(self, code: int, ext: dict[str, str], body: bytes = b"") -> Command:
        """One request and its answer."""
        future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self.ask(code, ext, body, future.set_result)
        return await future

    async def flood(
        self, requests: Iterator[tuple[int, dict[str, str], bytes]], *, window: int
    ) -> list[Command]:
        """All requests, so many at a time; their answers."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        answers: list[Command] = []

        def more() -> None:
            while len(self._waiting) < window:
                following = next(requests, None)
                if following is None:
                    if not self._waiting and not done.done():
                        done.set_result(None)
                    return
                self.ask(*following, take)

        def take(reply: Command) -> None:
            answers.append(reply)
            more()

        more()
        await done
        return answers


async def connect(address: str) -> Pipe:
    """A connection to a broker."""
    host, _, port = address.rpartition(":")
    _, pipe = await asyncio.get_running_loop().create_connection(Pipe, host, int(port))
    return pipe


def half(
    topic: str, number: int, *, size: int = 128, more: str = ""
) -> tuple[int, dict[str, str], bytes]:
    """A half message to send."""
    key = f"7F000001{number:024X}"
    properties = f"TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02UNIQ_KEY\x01{key}\x02WAIT\x01true\x02"
    ext = {
        "a": GROUP, "b": topic, "c": "TBW102", "d": "4", "e": str(number % 4), "f": "4",
        "g": str(int(time.time() * 1000)), "h": "0", "i": properties + more, "j": "0",
        "k": "false", "m": "false",
    }  # fmt: skip
    return Request.SEND_MESSAGE_V2, ext, b"x" * size


def end(
    found: Half, verdict: int, *, is_from_check: bool = False
) -> tuple[int, dict[str, str], bytes]:
    """An END of it: 8 commits, 12 rolls back."""
    ext = {
        "producerGroup": GROUP,
        "tranStateTableOffset": str(found.queue_offset),
        "commitLogOffset": str(found.log_offset),
        "commitOrRollback": str(verdict),
        "fromTransactionCheck": "true" if is_from_check else "false",
        "msgId": found.unique_key,
        "transactionId": found.unique_key,
    }
    return Request.END_TRANSACTION, ext, b""


def heartbeat() -> tuple[int, dict[str, str], bytes]:
    """A producer of the group is there."""
    body = b'{"clientID":"bench@1","producerDataSet":[{"groupName":"PG"}]}'
    return Request.HEART_BEAT, {}, body
