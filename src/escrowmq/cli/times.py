"""Moments as people write them."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime


def time_ms(text: str) -> int:
    """Milliseconds since 1970, from themselves or an ISO time."""
    if text.isdecimal():
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time; write 2026-11-21T12:00Z, or milliseconds since 1970"
        ) from error
    moment = found if found.tzinfo else found.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
