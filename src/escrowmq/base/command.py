"""Command: one remoting request or reply as a value."""

from __future__ import annotations

from typing import Annotated

import msgspec

Int = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
"""A number within the range of Java's int, in a header and its fields."""


class Command(msgspec.Struct, rename={"ext": "extFields"}):
    """A request or a reply. `ext` are the header fields, all text, with RocketMQ's names."""

    code: Int = 0
    opaque: Int = 0
    flag: Int = 0
    version: Int = 0
    language: str | int | None = None
    remark: str | None = None
    ext: dict[str, str] | None = None
    # Not part of the wire header; a reader sets both after decoding, whatever the peer wrote there.
    body: bytes = b""
    is_binary: bool = False


class ForeignRequest(Command, kw_only=True):
    """A request from a client of another protocol. Its signature does not cover the fields and the
    body."""

    content: bytes
    """The content that the client has signed; account and signature are in the fields."""

    signed_ms: int
    """When the signature arrived. On a stream this is the time of the call that opened it, for all
    its requests: otherwise later ones would be too old."""


class RepeatedRequest(Command, kw_only=True):
    """A request with the same form as an earlier one (codec/repeated_requests). Its fields are in
    `header`, not in `ext`."""

    header: msgspec.Struct
    """The header fields, as values."""

    raw: bytes
    """The encoded header."""
