"""The events that a connection returns to its owner."""

from __future__ import annotations

import msgspec

from escrowmq.http2.frames import ErrorCode
from escrowmq.http2.request_headers import HttpRequest


class StreamOpened(msgspec.Struct):
    """A client has opened a stream."""

    stream_id: int
    request: HttpRequest
    is_end: bool


class StreamData(msgspec.Struct):
    """More data of a stream; empty only at the end."""

    stream_id: int
    data: bytes
    is_end: bool


class StreamDrained(msgspec.Struct):
    """All data of a stream was sent, after `send` had returned False."""

    stream_id: int


class StreamReset(msgspec.Struct):
    """A stream has ended before it was answered: the client cancelled it, or made an error."""

    stream_id: int
    code: ErrorCode
    reason: str


Event = StreamOpened | StreamData | StreamDrained | StreamReset
