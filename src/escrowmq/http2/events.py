"""What a connection tells its owner."""

from __future__ import annotations

import msgspec

from escrowmq.http2.frames import Error
from escrowmq.http2.headers import HttpRequest


class Opened(msgspec.Struct):
    """A client asks something."""

    stream_id: int
    request: HttpRequest
    is_end: bool


class Data(msgspec.Struct):
    """More of what it says; empty at most when it is the end."""

    stream_id: int
    data: bytes
    is_end: bool


class Drained(msgspec.Struct):
    """All that was to be sent on a stream has left; `send` had said that some had to wait."""

    stream_id: int


class Reset(msgspec.Struct):
    """A stream is over before it was answered: given up by the client, or for a mistake of its."""

    stream_id: int
    code: Error
    reason: str


Event = Opened | Data | Drained | Reset
