"""Parses times, durations and counts as people write them."""

from __future__ import annotations

import argparse
import math
import re
from datetime import UTC, datetime
from typing import Final

from escrowmq.base.fixed_limits import LONG_MAX
from escrowmq.base.human_format import LAST_MS

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NUMBER_MAX: Final = 100_000_000
"""Limit of a number: the seconds of three years. A larger number is a typing error, and too large
for timers."""

_DIGITS_MAX: Final = 19

_SPAN: Final = re.compile(r"(\d{1,12})(ms|s|m|h|d)")


def parse_duration_ms(text: str) -> int:
    """Parse a duration; return milliseconds."""
    found = _SPAN.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; write 90s, 5m, 2h or 1d")
    return int(found[1]) * _UNITS_MS[found[2]]


def parse_amount(text: str) -> float:
    """Parse a finite number of at least 0."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found <= _NUMBER_MAX:  # neither is `nan`
        raise argparse.ArgumentTypeError(f"{text!r}: a number from 0 to {_NUMBER_MAX} is expected")
    return found


def parse_seconds(text: str) -> float:
    """Parse the seconds of a timeout or a pause, which must be above 0."""
    found = parse_amount(text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r}: more than 0 seconds are expected")
    return found


def parse_count(text: str) -> int:
    """Parse a whole number from 1 on."""
    if not (text.isdecimal() and 1 <= int(text) <= _NUMBER_MAX):
        raise argparse.ArgumentTypeError(
            f"{text!r}: a whole number from 1 to {_NUMBER_MAX} is expected"
        )
    return int(text)


def parse_whole(text: str) -> int:
    """Parse a whole number from 0 on, such as an offset."""
    if not (text.isdecimal() and len(text) <= _DIGITS_MAX and int(text) <= LONG_MAX):
        raise argparse.ArgumentTypeError(
            f"{text!r}: a whole number from 0 to {LONG_MAX} is expected"
        )
    return int(text)


def parse_time_ms(text: str) -> int:
    """Parse milliseconds since 1970, or an ISO time."""
    if text.isdecimal() and len(text) <= _DIGITS_MAX and int(text) <= LAST_MS:
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time; write 2026-11-21T12:00Z, or milliseconds since 1970"
        ) from error
    moment = found if found.tzinfo else found.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
