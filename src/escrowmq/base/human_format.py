"""Formats times, durations and sizes for people, on the command line and on pages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_MS: Final = 1000
_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")
_STEP: Final = 1024


LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""


def format_moment(ms: int) -> str:
    """Format a time since the epoch; a dash if there is none. A time after the year 9999, which any
    sender of a message may choose, stays a number."""
    if ms <= 0:
        return "-"
    if ms > LAST_MS:
        return f"{ms} ms"
    found = datetime.fromtimestamp(ms / _MS, UTC)
    return f"{found:%Y-%m-%dT%H:%M:%S}.{ms % _MS:03d}Z"


def format_span(ms: int) -> str:
    """Format a duration."""
    seconds, minutes, hours = ms / _MS, ms // 60_000, ms // 3_600_000
    if hours:
        return f"{hours}h{minutes % 60:02d}m"
    return f"{minutes}m{int(seconds) % 60:02d}s" if minutes else f"{seconds:.1f}s"


def format_byte_count(count: int) -> str:
    """Format a number of bytes."""
    value, nth = float(count), 0
    while value >= _STEP and nth < len(_UNITS) - 1:
        value, nth = value / _STEP, nth + 1
    return f"{count} bytes" if nth == 0 else f"{value:.1f} {_UNITS[nth]}"
