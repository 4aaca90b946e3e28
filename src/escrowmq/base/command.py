"""Command: one remoting request or reply as a value."""

from __future__ import annotations

import msgspec


class Command(msgspec.Struct, rename={"ext": "extFields"}):
    """A request or a reply. `ext` are the header fields, all text, under the peer's spelling."""

    code: int = 0
    opaque: int = 0
    flag: int = 0
    version: int = 0
    language: str | int | None = None
    remark: str | None = None
    ext: dict[str, str] | None = None
    # Not part of the wire header; a reader sets both after decoding, whatever the peer wrote there.
    body: bytes = b""
    is_binary: bool = False
