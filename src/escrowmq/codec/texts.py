"""Bytes that should be text."""

from __future__ import annotations


def is_text(data: bytes) -> bool:
    """Whether all of it is text. A decoder passes over what nobody asks for unread: what has other
    bytes anywhere is broken all the same."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
