"""A client's end for tests: it writes frames as it is told, and reads those that come."""

from __future__ import annotations

from typing import NamedTuple

from hpack import Decoder, Encoder

from escrowmq.http2 import frames
from escrowmq.http2.connection import Http2Connection
from escrowmq.http2.events import Event
from escrowmq.http2.frames import ErrorCode, FrameKind, Http2Setting
from escrowmq.http2.grpc_connection import GrpcConnection
from escrowmq.http2.limits import Http2Limits

Fields = list[tuple[bytes, bytes]]

REQUEST: Fields = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/a.Service/Method"),
    (b":authority", b"localhost"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
]


class Frame(NamedTuple):
    """One frame that came."""

    kind: int
    flags: int
    stream_id: int
    payload: bytes


def read_frames(data: bytes) -> list[Frame]:
    """Bytes of whole frames, taken apart."""
    found, at = [], 0
    while at < len(data):
        size_kind, flags, stream_id = frames.FRAME_HEADER.unpack_from(data, at)
        stop = at + frames.FRONT_SIZE + (size_kind >> 8)
        payload = data[at + frames.FRONT_SIZE : stop]
        found.append(Frame(size_kind & 0xFF, flags, stream_id, payload))
        at = stop
    assert at == len(data), "half a frame was written"
    return found


class Writer:
    """Frames of a client, with the table of its header blocks."""

    def __init__(self) -> None:
        self.encoder = Encoder()
        self.decoder = Decoder()

    def headers(
        self, stream_id: int, fields: Fields | None = None, *, is_end: bool = False
    ) -> bytes:
        block = self.encoder.encode(REQUEST if fields is None else fields)
        return frames.encode_headers(stream_id, block, is_end=is_end)

    def data(self, stream_id: int, data: bytes, *, is_end: bool = False) -> bytes:
        return frames.encode_frame(FrameKind.DATA, data, flags=int(is_end), stream_id=stream_id)

    def fields(self, frame: Frame) -> dict[str, str]:
        return {
            name.decode(): value.decode()
            for name, value in self.decoder.decode(frame.payload, raw=True)
        }


class Client(Writer):
    """A client that has said hello to a connection or to calls."""

    def __init__(
        self,
        limits: Http2Limits | None = None,
        *,
        settings: dict[Http2Setting, int] | None = None,
        is_grpc: bool = False,
    ) -> None:
        super().__init__()
        self.connection = Http2Connection(limits)
        self.calls = GrpcConnection(limits)
        self.end: Http2Connection | GrpcConnection = self.calls if is_grpc else self.connection
        self.now_ms = 0
        self.write(frames.PREFACE + frames.encode_settings(settings or {}))
        self.read()

    def write(self, data: bytes) -> list[Event]:
        """What the connection makes of it."""
        return self.connection.receive(data, self.now_ms) if self.end is self.connection else []

    def read(self) -> list[Frame]:
        """What came since."""
        return read_frames(b"".join(self.end.take_bytes()))


def goaway(client: Client) -> ErrorCode:
    """The reason of the GOAWAY that came last."""
    last = client.read()[-1]
    assert last.kind == FrameKind.GOAWAY
    assert client.connection.is_over
    assert client.connection.end_reason
    return ErrorCode(int.from_bytes(last.payload[4:8], "big"))
