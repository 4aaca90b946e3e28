"""Events of a connection for its owner."""

from __future__ import annotations

import msgspec

from escrowmq.http2.frames import Error
from escrowmq.http2.headers import HttpRequest


class Opened(msgspec.Struct):
    """A client opens a stream."""

    stream_id: int
    request: HttpRequest
    is_end: bool


class Data(msgspec.Struct):
    """More data of a stream; empty only at the end."""

    stream_id: int
    data: bytes
    is_end: bool


class Drained(msgspec.Struct):
    """All data of a stream has been sent, after `send` had reported that some had to wait."""

    stream_id: int


class Reset(msgspec.Struct):
    """A stream ended before it was answered: cancelled by the client, or for an error of the
    client's."""

    stream_id: int
    code: Error
    reason: str


Event = Opened | Data | Drained | Reset
