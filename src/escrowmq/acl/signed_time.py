"""The time that clients of RocketMQ 5 sign (x-mq-date-time): 20260101T120000Z, or as in RFC 3339.

Their signature covers this and nothing else. The clients for Java and Python write local time,
although with the Z of UTC; that for Rust writes its offset from UTC."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

SETTING: Final = "escrowSignatureWindowSeconds"
_SIZE_MAX: Final = 64
_MS: Final = 1_000


def signed_time_fault(content: bytes, now_ms: int, window_s: int) -> str:
    """Return why a time is outside a window around now; empty if it is inside."""
    text = content[:_SIZE_MAX].decode("latin-1")
    try:
        signed = datetime.fromisoformat(text)
    except ValueError:
        return (
            f"x-mq-date-time is {text!r}, and {SETTING}={window_s} wants a time like "
            "20260101T120000Z there"
        )
    if signed.tzinfo is None:
        signed = signed.replace(tzinfo=UTC)
    off_s = abs(now_ms // _MS - int(signed.timestamp()))
    if off_s <= window_s:
        return ""
    return (
        f"x-mq-date-time is {text}, {off_s} s from this broker's time, and {SETTING} allows "
        f"{window_s}; set the client's clock, or its time zone to UTC: clients for Java and Python "
        "sign their local time"
    )
