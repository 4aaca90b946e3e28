"""Moments as people write them."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime, time, tzinfo
from typing import Final

from escrowmq.errors import UsageError

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SPAN: Final = re.compile(r"(\d{1,12})(ms|s|m|h|d)")


def span_ms(text: str) -> int:
    """Milliseconds, from a span as people write it."""
    found = _SPAN.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no span; write 90s, 5m, 2h or 1d")
    return int(found[1]) * _UNITS_MS[found[2]]


_TIME_OF_DAY: Final = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")


def today_at(text: str, now_ms: int, zone: tzinfo) -> datetime | None:
    """A time of day as today's, where people live; None when it is no time of day. UsageError when
    there is no such time, or it is still to come."""
    if not _TIME_OF_DAY.fullmatch(text):
        return None
    today = datetime.fromtimestamp(now_ms / 1000, zone).date()
    try:
        found = datetime.combine(
            today, time.fromisoformat(text if text[2] == ":" else f"0{text}"), zone
        )
    except ValueError as error:
        raise UsageError(f"{text} is no time of day; write 09:00 or 09:00:30") from error
    if found.timestamp() * 1000 > now_ms:
        raise UsageError(
            f"{text} is still to come today ({found.isoformat()}); write the day as well, with its "
            "zone: 2026-11-21T09:00+01:00"
        )
    return found


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
