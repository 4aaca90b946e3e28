"""A v5 client in a test: calls go as frames over a connection to a broker's core, and what comes
back is read from frames."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from google.protobuf.message import Message

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.wire import Wire
from escrowmq.broker.guests import GuestClients
from escrowmq.http2 import frames
from escrowmq.http2.frames import FrameKind, Http2Setting
from escrowmq.proxy.front import GrpcFront
from escrowmq.proxy.gen import v2
from escrowmq.proxy.service_context import FrontOptions
from tests.harness.exchange import Exchange
from tests.unit.http2.wire import Writer, read_frames

_FRAME_SIZE = 16_384
_ROOM = 1 << 30
_FRONT = struct.Struct(">BI")
M = TypeVar("M", bound=Message)

ENDPOINT = ("10.0.0.1", 8081)
SERVICE = "/apache.rocketmq.v2.MessagingService/"


class World:
    """A broker with a gRPC front."""

    def __init__(
        self, settings: BrokerSettings | None = None, *, is_of_group: bool = False, **more: Any
    ) -> None:
        self.exchange = Exchange(settings, **more)
        self._is_of_group = is_of_group
        self.begin()

    def begin(self) -> None:
        core = self.exchange.core
        size_max = self.exchange.store_settings.body_size_max
        options = FrontOptions(
            endpoint=ENDPOINT, body_size_max=size_max, is_of_group=self._is_of_group
        )
        self.front = GrpcFront(GuestClients(core), options)
        core.add_front(Wire.GRPC, self.front)

    def restart(self) -> None:
        self.exchange.crash()
        self.begin()

    def topic(self, name: str, kind: str = "", queues: int = 1) -> None:
        attributes = {"attributes": f"+message.type={kind}"} if kind else {}
        self.exchange.create_topic(name, queues, **attributes)

    def connect(self, client_id: str = "client", **more: Any) -> V5:
        return V5(self.exchange, client_id, **more)


class Stream:
    """One call: what was said to it."""

    def __init__(self) -> None:
        self.data = b""
        self.fields: dict[str, str] = {}
        self.is_over = False

    def messages(self, kind: type[M]) -> list[M]:
        found, at = [], 0
        while at < len(self.data):
            _, size = _FRONT.unpack_from(self.data, at)
            found.append(kind.FromString(self.data[at + 5 : at + 5 + size]))
            at += 5 + size
        return found

    @property
    def code(self) -> int:
        assert self.is_over
        return int(self.fields["grpc-status"])


class V5(Writer):
    """One connection, as a client of the harness."""

    def __init__(
        self,
        exchange: Exchange,
        client_id: str,
        *,
        host: str = "10.0.0.7",
        metadata: dict[str, str] | None = None,
        is_slow: bool = False,
    ) -> None:
        super().__init__()
        self.exchange = exchange
        self.client_id = client_id
        self.metadata = metadata or {}
        self.closed: str | None = None
        self.streams: dict[int, Stream] = {}
        self.streams_max = 0
        """As the server says."""
        self._numbers = itertools.count(1, 2)
        self._kept: list[bytes] | None = None
        self.id = exchange._next_peer
        exchange._next_peer += 1
        exchange.callers[self.id] = self  # type: ignore[assignment]
        exchange.core.connected(self.id, host, 5_000, exchange.now_ms, Wire.GRPC)
        hello = frames.encode_settings(
            {Http2Setting.INITIAL_WINDOW_SIZE: _ROOM}
        ) + frames.encode_window_update(0, _ROOM)
        self._feed(frames.PREFACE + (frames.encode_settings({}) if is_slow else hello))

    def _feed(self, data: bytes) -> None:
        if self._kept is None:
            self.exchange.feed(self, data)  # type: ignore[arg-type]
        else:
            self._kept.append(data)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """What is written meanwhile is read at once."""
        kept = self._kept = []
        yield
        self._kept = None
        self._feed(b"".join(kept))

    def leave(self) -> None:
        self.exchange.leave(self)  # type: ignore[arg-type]

    def hear(self, data: bytes) -> None:
        for frame in read_frames(data):
            if frame.kind == FrameKind.SETTINGS and not frame.flags & frames.ACK:
                said = dict(frames.decode_settings(frame.payload))
                self.streams_max = said[Http2Setting.MAX_CONCURRENT_STREAMS]
            stream = self.streams.get(frame.stream_id)
            if stream is None:
                continue
            if frame.kind == FrameKind.HEADERS:
                stream.fields |= self.fields(frame)
            elif frame.kind == FrameKind.DATA:
                stream.data += frame.payload
            stream.is_over |= bool(frame.flags & frames.END_STREAM)
            stream.is_over |= frame.kind == FrameKind.RST_STREAM

    # -- calls -----------------------------------------------------------------------------------

    def begin(self, method: str, *, timeout_s: int = 30, service: str = SERVICE) -> int:
        number = next(self._numbers)
        self.streams[number] = Stream()
        fields = {
            ":method": "POST", ":scheme": "http", ":path": service + method, ":authority": "b",
            "te": "trailers", "content-type": "application/grpc",
            "grpc-timeout": f"{timeout_s}S", "x-mq-language": "PYTHON", **self.metadata,
        }  # fmt: skip
        if self.client_id:
            fields["x-mq-client-id"] = self.client_id
        encoded = [(name.encode(), value.encode()) for name, value in fields.items()]
        self._feed(self.headers(number, encoded))
        return number

    def write(self, number: int, message: Message, *, is_end: bool = False) -> None:
        data = message.SerializeToString()
        framed = _FRONT.pack(0, len(data)) + data
        for at in range(0, len(framed), _FRAME_SIZE):
            part = framed[at : at + _FRAME_SIZE]
            is_last = at + _FRAME_SIZE >= len(framed)
            self._feed(self.data(number, part, is_end=is_end and is_last))

    def start(self, method: str, request: Message, *, timeout_s: int = 30) -> Stream:
        number = self.begin(method, timeout_s=timeout_s)
        self.write(number, request, is_end=True)
        return self.streams[number]

    def cancel(self, number: int) -> None:
        self._feed(
            frames.encode_frame(FrameKind.RST_STREAM, struct.pack(">I", 8), stream_id=number)
        )

    def ask(self, method: str, request: Message, kind: type[M]) -> M:
        stream = self.start(method, request)
        assert stream.is_over, "no answer yet"
        (found,) = stream.messages(kind)
        assert stream.code == 0
        return found

    # -- what clients do -------------------------------------------------------------------------

    def telemetry(self, settings: v2.Settings) -> int:
        number = self.begin("Telemetry", timeout_s=360_000)
        self.write(number, v2.TelemetryCommand(settings=settings))
        return number

    def told(self, number: int) -> list[v2.TelemetryCommand]:
        return self.streams[number].messages(v2.TelemetryCommand)

    def produce(self, *topics: str) -> int:
        settings = v2.Settings(client_type=v2.PRODUCER)
        settings.publishing.topics.extend(v2.Resource(name=topic) for topic in topics)
        return self.telemetry(settings)

    def consume(self, group: str, topic: str, kind: int = v2.SIMPLE_CONSUMER) -> int:
        settings = v2.Settings()
        settings.client_type = kind  # type: ignore[assignment]
        settings.subscription.group.name = group
        entry = settings.subscription.subscriptions.add()
        entry.topic.name = topic
        entry.expression.type, entry.expression.expression = v2.TAG, "*"
        return self.telemetry(settings)

    def send(self, *messages: v2.Message) -> v2.SendMessageResponse:
        request = v2.SendMessageRequest(messages=messages)
        return self.ask("SendMessage", request, v2.SendMessageResponse)

    def receive(self, topic: str, group: str = "CG", **more: Any) -> Stream:
        return self.start("ReceiveMessage", receiving(topic, group, **more))

    def received(self, topic: str, group: str = "CG", **more: Any) -> list[v2.Message]:
        stream = self.receive(topic, group, **more)
        assert stream.is_over, "nothing yet"
        return messages_of(stream)

    def ack(self, message: v2.Message, group: str = "CG", topic: str = "") -> v2.Status:
        request = v2.AckMessageRequest()
        request.group.name = group
        request.topic.name = topic or message.topic.name
        request.entries.add(
            message_id=message.system_properties.message_id,
            receipt_handle=message.system_properties.receipt_handle,
        )
        return self.ask("AckMessage", request, v2.AckMessageResponse).status

    def end(
        self, topic: str, transaction_id: str, resolution: int, *, source: int = 1
    ) -> v2.Status:
        request = v2.EndTransactionRequest(transaction_id=transaction_id, message_id="m")
        request.topic.name = topic
        request.resolution, request.source = resolution, source  # type: ignore[assignment]
        return self.ask("EndTransaction", request, v2.EndTransactionResponse).status


def message(topic: str, body: bytes = b"hello", kind: int = v2.NORMAL, **system: Any) -> v2.Message:
    found = v2.Message(body=body, system_properties=v2.SystemProperties(**system))
    found.topic.name = topic
    found.system_properties.message_type = kind  # type: ignore[assignment]
    if not found.system_properties.message_id:
        found.system_properties.message_id = "0100112233445566778899AABBCCDDEEFF"
    return found


def receiving(
    topic: str,
    group: str = "CG",
    *,
    count: int = 8,
    invisible_s: int = 30,
    renew: bool = False,
    expression: str = "*",
    poll_s: int = 10,
    attempt_id: str = "",
) -> v2.ReceiveMessageRequest:
    request = v2.ReceiveMessageRequest(batch_size=count, auto_renew=renew)
    request.group.name = group
    request.message_queue.topic.name = topic
    request.filter_expression.type = v2.TAG
    request.filter_expression.expression = expression
    request.invisible_duration.seconds = invisible_s
    request.long_polling_timeout.seconds = poll_s
    if attempt_id:
        request.attempt_id = attempt_id
    return request


def messages_of(stream: Stream) -> list[v2.Message]:
    parts = stream.messages(v2.ReceiveMessageResponse)
    assert parts[0].WhichOneof("content") == "status"
    assert parts[-1].WhichOneof("content") == "delivery_timestamp"
    return [part.message for part in parts[1:-1]]


def status_of(stream: Stream) -> v2.Status:
    return stream.messages(v2.ReceiveMessageResponse)[0].status
