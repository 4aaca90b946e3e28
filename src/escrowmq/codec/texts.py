"""Checks whether bytes are text."""

from __future__ import annotations


def is_utf8(data: bytes) -> bool:
    """Whether all bytes are valid UTF-8. Decoders skip fields that are not needed, but a record
    with invalid bytes anywhere is broken."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
