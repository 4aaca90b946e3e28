"""HTTP/2 frames (RFC 9113), big-endian.

offset size field
     0    3 size          of the payload
     3    1 kind
     4    1 flags
     5    4 stream        its first bit is ignored
     9      payload
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from typing import Final

from escrowmq.errors import RemoteProtocolError

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The bytes with which every client's connection begins."""

FRAME_HEADER: Final = struct.Struct(">IBI")
"""The format of a frame's header: size and kind in one number, flags, stream."""

FRONT_SIZE: Final = FRAME_HEADER.size
STREAM_MASK: Final = 0x7FFFFFFF
FRAME_SIZE: Final = 16_384
"""The largest frame that every client must accept, and that is accepted here
(SETTINGS_MAX_FRAME_SIZE is not changed). Larger ones would save little, and an incomplete frame
uses memory."""

_FRAME_SIZE_TOP: Final = 16_777_215
WINDOW_MAX: Final = 0x7FFFFFFF
WINDOW_DEFAULT: Final = 65_535

U32: Final = struct.Struct(">I")
_SETTING: Final = struct.Struct(">HI")
_GOAWAY: Final = struct.Struct(">II")


class FrameKind(enum.IntEnum):
    """Kinds of frames."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


ACK: Final = 0x1
END_STREAM: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITY: Final = 0x20


class ErrorCode(enum.IntEnum):
    """Error codes of RST_STREAM and GOAWAY."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


class Http2Setting(enum.IntEnum):
    """Numbers of settings."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class ConnectionFault(RemoteProtocolError):
    """Raised if the other end broke a rule of the connection, which then cannot continue."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class StreamFault(RemoteProtocolError):
    """Raised if the other end broke a rule of one stream; other streams continue."""

    def __init__(self, stream_id: int, *, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.stream_id = stream_id
        self.code = code


def encode_frame(
    kind: FrameKind, payload: bytes = b"", *, flags: int = 0, stream_id: int = 0
) -> bytes:
    """Encode a frame."""
    return FRAME_HEADER.pack(len(payload) << 8 | kind, flags, stream_id) + payload


def encode_headers(stream_id: int, block: bytes, *, is_end: bool) -> bytes:
    """Encode HEADERS, with as many CONTINUATION frames as the block needs."""
    end = END_STREAM if is_end else 0
    if len(block) <= FRAME_SIZE:
        return FRAME_HEADER.pack(len(block) << 8 | 1, end | END_HEADERS, stream_id) + block
    parts = [block[at : at + FRAME_SIZE] for at in range(0, len(block), FRAME_SIZE)]
    out = [encode_frame(FrameKind.HEADERS, parts[0], flags=end, stream_id=stream_id)]
    out += [encode_frame(FrameKind.CONTINUATION, part, stream_id=stream_id) for part in parts[1:-1]]
    out.append(
        encode_frame(FrameKind.CONTINUATION, parts[-1], flags=END_HEADERS, stream_id=stream_id)
    )
    return b"".join(out)


def encode_settings(values: dict[Http2Setting, int]) -> bytes:
    """Encode a SETTINGS frame."""
    return encode_frame(
        FrameKind.SETTINGS, b"".join(_SETTING.pack(*pair) for pair in values.items())
    )


def encode_reset(stream_id: int, code: ErrorCode) -> bytes:
    """Encode a RST_STREAM frame."""
    return encode_frame(FrameKind.RST_STREAM, U32.pack(code), stream_id=stream_id)


def encode_window_update(stream_id: int, size: int) -> bytes:
    """Encode a WINDOW_UPDATE frame; stream 0 is the connection."""
    return encode_frame(FrameKind.WINDOW_UPDATE, U32.pack(size), stream_id=stream_id)


def encode_goaway(last_stream_id: int, code: ErrorCode, text: str) -> bytes:
    """Encode a GOAWAY frame; its text is for the client's log."""
    data = text.encode("ascii", "replace")[:200]
    return encode_frame(FrameKind.GOAWAY, _GOAWAY.pack(last_stream_id, code) + data)


def count_settings(payload: bytes) -> int:
    """Return the number of settings in a SETTINGS payload."""
    if len(payload) % _SETTING.size:
        raise ConnectionFault(
            ErrorCode.FRAME_SIZE_ERROR, f"SETTINGS of {len(payload)} bytes; 6 for each are allowed"
        )
    return len(payload) // _SETTING.size


def decode_settings(payload: bytes) -> Iterator[tuple[int, int]]:
    """Yield number and value of each setting. Raises ConnectionFault if a value is invalid; unknown
    numbers are not checked."""
    for number, value in _SETTING.iter_unpack(payload):
        if number == Http2Setting.ENABLE_PUSH and value > 1:
            raise ConnectionFault(
                ErrorCode.PROTOCOL_ERROR, f"ENABLE_PUSH is {value}; 0 or 1 allowed"
            )
        if number == Http2Setting.INITIAL_WINDOW_SIZE and value > WINDOW_MAX:
            raise ConnectionFault(
                ErrorCode.FLOW_CONTROL_ERROR,
                f"INITIAL_WINDOW_SIZE is {value}; up to {WINDOW_MAX} allowed",
            )
        if number == Http2Setting.MAX_FRAME_SIZE and not FRAME_SIZE <= value <= _FRAME_SIZE_TOP:
            raise ConnectionFault(
                ErrorCode.PROTOCOL_ERROR,
                f"MAX_FRAME_SIZE is {value}; {FRAME_SIZE}..{_FRAME_SIZE_TOP} allowed",
            )
        yield number, value


def remove_padding(payload: bytes) -> bytes:
    """Return a payload without its padding, whose length is in the first byte."""
    if not payload:
        raise ConnectionFault(
            ErrorCode.FRAME_SIZE_ERROR, "padded frame without the size of padding"
        )
    size = payload[0]
    if size >= len(payload):
        raise ConnectionFault(
            ErrorCode.PROTOCOL_ERROR, f"padding of {size} bytes in a frame of {len(payload)}"
        )
    return payload[1 : len(payload) - size]


def require_size(kind: str, payload: bytes, size: int) -> bytes:
    """Return the payload if it has the required size. Raises ConnectionFault if not."""
    if len(payload) != size:
        raise ConnectionFault(
            ErrorCode.FRAME_SIZE_ERROR, f"{kind} of {len(payload)} bytes; {size} allowed"
        )
    return payload
