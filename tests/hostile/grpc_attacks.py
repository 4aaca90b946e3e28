"""What costs a server much at its port for gRPC clients, by those without an account: each is one
go of an attack, as those of `attacks`."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import socket
import struct
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from google.protobuf.message import Message

from escrowmq.http2 import frames
from escrowmq.http2.frames import FrameKind, Http2Setting
from escrowmq.proxy.gen import health, reflection, v2
from tests.unit.http2.wire import REQUEST, Writer

from .place import Place

_SERVICE: Final = "/apache.rocketmq.v2.MessagingService/"
_WATCH: Final = "/grpc.health.v1.Health/Watch"
_REFLECTION: Final = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
_ANSWER_S: Final = 60.0
_ROOM: Final = 1 << 30
_SETTING: Final = struct.Struct(">HI")
_PING: Final = b"are you "


class Stranger(Writer):
    """One connection."""

    def __init__(self, place: Place, *, window: int = _ROOM) -> None:
        super().__init__()
        host, _, port = place.grpc.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=_ANSWER_S)
        self._numbers = itertools.count(1, 2)
        self._open: set[int] = set()
        """Calls that are to be answered."""
        self.say(
            frames.PREFACE
            + frames.encode_settings({Http2Setting.INITIAL_WINDOW_SIZE: window})
            + frames.encode_window_update(0, _ROOM)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._socket.close()

    def say(self, data: bytes) -> None:
        """Write bytes, unless the server has ended the connection."""
        with contextlib.suppress(ConnectionError):
            self._socket.sendall(data)

    def call(
        self, path: str, *messages: Message, is_end: bool = True, window: int = 1 << 20
    ) -> int:
        """Begin a call; its number. Not more than a window of it is written."""
        number = next(self._numbers)
        fields = [(b":path", path.encode()) if name == b":path" else (name, value)
                  for name, value in REQUEST]  # fmt: skip
        out = self.headers(number, [*fields, (b"x-mq-client-id", b"stranger")])
        data = b"".join(map(framed, messages))[:window]
        for at in range(0, len(data), frames.FRAME_SIZE):
            out += self.data(number, data[at : at + frames.FRAME_SIZE])
        if is_end:
            out += self.data(number, b"", is_end=True)
            self._open.add(number)
        self.say(out)
        return number

    def hear(self) -> None:
        """Read until all calls are answered and a PING is, or the connection has ended."""
        self.say(frames.encode_frame(FrameKind.PING, _PING))
        held, is_heard = b"", False
        while self._open or not is_heard:
            try:
                data = self._socket.recv(1 << 20)
            except ConnectionError:
                return
            if not data:
                return
            held += data
            at = 0
            while len(held) - at >= frames.FRONT_SIZE:
                size_kind, flags, number = frames.FRAME_HEADER.unpack_from(held, at)
                stop = at + frames.FRONT_SIZE + (size_kind >> 8)
                if stop > len(held):
                    break
                kind, at = size_kind & 0xFF, stop
                is_heard |= kind == FrameKind.PING and bool(flags & frames.ACK)
                if kind == FrameKind.RST_STREAM or (
                    kind in (FrameKind.HEADERS, FrameKind.DATA) and flags & frames.END_STREAM
                ):
                    self._open.discard(number)
            held = held[at:]


def framed(message: Message) -> bytes:
    data = message.SerializeToString()
    return struct.pack(">BI", 0, len(data)) + data


def windows_that_are_resized(place: Place) -> None:
    pairs = b"".join(
        _SETTING.pack(Http2Setting.INITIAL_WINDOW_SIZE, 65_535 + (nth & 1)) for nth in range(2_730)
    )
    with Stranger(place) as stranger:
        for _ in range(100):
            stranger.call(_WATCH, health.HealthCheckRequest(), is_end=False)
        stranger.hear()
        stranger.say(frames.encode_frame(FrameKind.SETTINGS, pairs) * 40)
        stranger.hear()


def windows_by_the_byte(place: Place) -> None:
    question = reflection.ServerReflectionRequest(file_containing_symbol="grpc.health.v1.Health")
    with Stranger(place, window=0) as stranger:
        numbers = [stranger.call(_REFLECTION, question, is_end=False) for _ in range(100)]
        stranger.hear()
        updates = itertools.islice(itertools.cycle(numbers), 5_000)
        stranger.say(b"".join(frames.encode_window_update(number, 1) for number in updates))
        stranger.hear()


def fields_by_the_byte(place: Place) -> None:
    with Stranger(place) as stranger:
        fields = [*REQUEST, *[(b"a", b"b")] * 400]
        blocks = [stranger.headers(2 * nth + 1, [*fields, (b"z", b"%d" % nth)], is_end=True)
                  for nth in range(600)]  # fmt: skip
        stranger.say(b"".join(blocks))
        stranger.hear()


def bodies_that_unpack_to_much(place: Place) -> None:
    packed = v2.Message(body=gzip.compress(bytes(4_000_000)))
    packed.topic.name = "TB"
    packed.system_properties.message_id = "m"
    packed.system_properties.body_encoding = v2.GZIP
    with Stranger(place) as stranger:
        for _ in range(60):
            stranger.call(f"{_SERVICE}SendMessage", v2.SendMessageRequest(messages=[packed]))
        stranger.hear()


def calls_with_many_parts(place: Place) -> None:
    acks = v2.AckMessageRequest()
    acks.group.name, acks.topic.name = "GB", "TB"
    for nth in range(4_096):
        acks.entries.add(receipt_handle=f"0 1700000000000 60000 0 0 broker-a 0 {nth} {nth}")
    one = v2.Message(body=b"x")
    one.topic.name, one.system_properties.message_id = "TB", "m"
    many = v2.SendMessageRequest(messages=[one] * 1_024)
    with Stranger(place) as stranger:
        for _ in range(8):
            stranger.call(f"{_SERVICE}AckMessage", acks)
            stranger.call(f"{_SERVICE}SendMessage", many)
        stranger.hear()


def questions_of_reflection(place: Place) -> None:
    question = reflection.ServerReflectionRequest(
        file_containing_symbol="apache.rocketmq.v2.MessagingService"
    )
    with Stranger(place) as stranger:
        for _ in range(4):
            stranger.call(_REFLECTION, *[question] * 350)
        stranger.hear()


GRPC_CASES: tuple[Callable[[Place], None], ...] = (
    windows_that_are_resized, windows_by_the_byte, fields_by_the_byte,
    bodies_that_unpack_to_much, calls_with_many_parts, questions_of_reflection,
)  # fmt: skip
