"""gRPC's header fields: deadlines, metadata, the final status."""

from __future__ import annotations

import enum
import re
from typing import Final

from escrowmq.http2.request_headers import encode_literal

NO_DEADLINE: Final = -1
_TIMEOUT: Final = re.compile(rb"(\d{1,8})([HMSmun])")
_NS: Final = {
    b"H": 3_600_000_000_000,
    b"M": 60_000_000_000,
    b"S": 1_000_000_000,
    b"m": 1_000_000,
    b"u": 1_000,
    b"n": 1,
}
_NS_A_MS: Final = 1_000_000


class GrpcStatus(enum.IntEnum):
    """The status code with which a call ended."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


HEADERS: Final = b"\x88" + encode_literal(b"content-type", b"application/grpc")
"""The headers of every answer; `:status 200` is a reference to the static table."""

OK_TRAILERS: Final = encode_literal(b"grpc-status", b"0")
"""The trailers of a successful call."""

WRONG_TYPE: Final = encode_literal(b":status", b"415")
NOT_GRPC_ANSWER: Final = encode_literal(b":status", b"405") + encode_literal(b"allow", b"POST")
"""The HTTP answer for clients that do not speak gRPC."""

IDENTITY_ONLY: Final = encode_literal(b"grpc-accept-encoding", b"identity")


def parse_timeout(value: bytes) -> int:
    """Parse grpc-timeout; return ms, at least 1. Raises ValueError."""
    found = _TIMEOUT.fullmatch(value)
    if found is None:
        raise ValueError(f"grpc-timeout is {value!r}; up to 8 digits and one of HMSmun allowed")
    return max(1, int(found[1]) * _NS[found[2]] // _NS_A_MS)


def percent_encode(text: str) -> bytes:
    """Encode a status text as grpc-message: all bytes except printable ASCII are percent-encoded,
    and so is the percent sign."""
    return b"".join(
        bytes((byte,)) if 0x20 <= byte <= 0x7E and byte != 0x25 else b"%%%02X" % byte
        for byte in text.encode("utf-8", "replace")
    )


def encode_trailers(status: GrpcStatus, text: str = "") -> bytes:
    """Encode the trailers of a call."""
    if status is GrpcStatus.OK and not text:
        return OK_TRAILERS
    block = encode_literal(b"grpc-status", b"%d" % status)
    return block + encode_literal(b"grpc-message", percent_encode(text)) if text else block
