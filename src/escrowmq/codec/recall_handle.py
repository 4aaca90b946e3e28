"""The handle that recalls a delayed message: URL-safe Base64 of five words.

v1 <topic> <broker name> <delivery time, ms> <unique key>"""

from __future__ import annotations

import base64
import binascii
from typing import Final

import msgspec

from escrowmq.errors import UsageError

_VERSION: Final = "v1"
_WORDS: Final = 5
_SIZE_MAX: Final = 1024


class RecallHandle(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a recall handle: which delayed message, on which broker, and its delivery
    time."""

    topic: str
    broker_name: str
    deliver_ms: int
    unique_key: str


def encode_recall_handle(handle: RecallHandle) -> str:
    """Encode a recall handle to text."""
    words = (_VERSION, handle.topic, handle.broker_name, str(handle.deliver_ms), handle.unique_key)
    return base64.urlsafe_b64encode(" ".join(words).encode()).decode()


def decode_recall_handle(text: str) -> RecallHandle:
    """Decode a recall handle. Raises UsageError if it is invalid."""
    if len(text) > _SIZE_MAX:
        raise UsageError(f"recall handle of {len(text)} characters, {_SIZE_MAX} allowed")
    try:
        words = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode().split(" ")
        if len(words) != _WORDS or words[0] != _VERSION:
            raise UsageError(f"recall handle {text!r} does not consist of `v1` and four words")
        return RecallHandle(
            topic=words[1],
            broker_name=words[2],
            deliver_ms=int(words[3]),
            unique_key=words[4],
        )
    except (binascii.Error, UnicodeDecodeError, ValueError) as error:
        raise UsageError(f"recall handle {text!r} cannot be read") from error
