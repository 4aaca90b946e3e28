"""Answers that do not fit into a frame: compressed for peers that accept it. RocketMQ's peers do
not ask for that, and RocketMQ's brokers ignore the field."""

from __future__ import annotations

from typing import Final

from escrowmq.base.command import Command
from escrowmq.base.message import SysFlag

ACCEPTS_ZLIB: Final = {"escrowAcceptsZlib": "true"}
"""The field of a request whose sender can read a compressed answer."""

COMPRESSED: Final = {"escrowCompression": "zlib"}
"""The field of a compressed answer."""

SIZE_MAX: Final = 256 * 1024 * 1024
"""The largest answer that is decompressed."""

_LEVEL: Final = 1


def accepts_zlib(request: Command) -> bool:
    """Whether the sender of a request can read a compressed answer."""
    return ACCEPTS_ZLIB.items() <= (request.ext or {}).items()


def compress_body(body: bytes) -> bytes:
    """Compress the body of an answer."""
    from escrowmq.codec.compression import compress

    return compress(body, form="zlib", level=_LEVEL)[0]


def decompressed_body(answer: Command) -> bytes:
    """Return the body of an answer, decompressed if its sender has compressed it. Raises
    RemoteProtocolError if it is broken or too large."""
    if not COMPRESSED.items() <= (answer.ext or {}).items():
        return answer.body
    from escrowmq.codec.compression import decompress

    return decompress(answer.body, SysFlag.COMPRESSED, size_max=SIZE_MAX)
