"""The events that a connection returns to its owner."""

from __future__ import annotations

import msgspec

from escrowmq.http2.frames import Error
from escrowmq.http2.headers import HttpRequest


class Opened(msgspec.Struct):
    """A client has opened a stream."""

    stream_id: int
    request: HttpRequest
    is_end: bool


class Data(msgspec.Struct):
    """More data of a stream; empty only at the end."""

    stream_id: int
    data: bytes
    is_end: bool


class Drained(msgspec.Struct):
    """All data of a stream was sent, after `send` had returned False."""

    stream_id: int


class Reset(msgspec.Struct):
    """A stream has ended before it was answered: the client cancelled it, or made an error."""

    stream_id: int
    code: Error
    reason: str


Event = Opened | Data | Drained | Reset
