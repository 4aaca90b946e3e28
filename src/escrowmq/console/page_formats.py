"""Formats values for pages. An unknown value is shown as a word, never as a number."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

from escrowmq.base.human_format import (
    LAST_MS,
    format_byte_count,
    format_moment,
    format_span,
)
from escrowmq.base.printable import printable
from escrowmq.console.charts import short_number

UNKNOWN: Final = "unknown"
_TEXT_MAX: Final = 64 * 1024
"""The most bytes of a body that a page shows; the API returns all."""

_HEX_MAX: Final = 4 * 1024
_HEX_ROW: Final = 16


def value_or_unknown(value: object) -> object:
    """Return the value, or the word for "unknown"."""
    return UNKNOWN if value is None else value


def format_number(value: float | None) -> str:
    """Format a number with spaces: 1 234 567."""
    if value is None:
        return UNKNOWN
    return (
        f"{value:,.0f}".replace(",", "\u202f") if float(value).is_integer() else short_number(value)
    )


def format_percent(value: float | None) -> str:
    """Format a number from 0 to 1 as a percentage."""
    return UNKNOWN if value is None else f"{value:.0%}"


def format_time(ms: int | None) -> str:
    """Format a time; a dash if there is none."""
    return UNKNOWN if ms is None else format_moment(ms)


def format_machine_time(ms: int) -> str:
    """Format a time for `<time datetime>`."""
    return datetime.fromtimestamp(min(max(ms, 0), LAST_MS) / 1000, UTC).isoformat()


def format_duration(ms: int | None) -> str:
    """Format a duration."""
    return UNKNOWN if ms is None else format_span(ms)


def format_rough_duration(ms: int) -> str:
    """Format a duration roughly: 5 min, 2 h."""
    for unit_ms, unit in ((3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if ms >= unit_ms and ms % unit_ms == 0:
            return f"{ms // unit_ms} {unit}"
    return format_span(ms)


def format_size(count: int | None) -> str:
    """Format a number of bytes."""
    return UNKNOWN if count is None else format_byte_count(count)


def quote_for_url(name: object) -> str:
    """Quote a name as one segment of a URL."""
    return quote(str(name), safe="")


def decode_as_text(body: bytes) -> str | None:
    """Decode a body as text; None if it is not text."""
    try:
        text = body[:_TEXT_MAX].decode()
    except UnicodeDecodeError as error:
        if len(body) <= _TEXT_MAX or error.start < _TEXT_MAX - 4:
            return None
        text = body[: error.start].decode()
    return "\n".join(printable(line) for line in text.split("\n"))


def format_as_json(body: bytes) -> str | None:
    """Format a body as indented JSON; None if it is not JSON, or too large."""
    if len(body) > _TEXT_MAX:
        return None
    try:
        return json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def format_as_hex(body: bytes) -> str:
    """Format the first bytes of a body as a hex dump."""
    rows = []
    for at in range(0, min(len(body), _HEX_MAX), _HEX_ROW):
        row = body[at : at + _HEX_ROW]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        rows.append(f"{at:08x}  {row.hex(' '):<47}  {letters}")
    return "\n".join(rows)


def describe_cut(size: int, shown: int = _TEXT_MAX) -> str:
    """Say how much of a body a view leaves out."""
    return (
        f"the first {format_byte_count(shown)} of {format_byte_count(size)}" if size > shown else ""
    )


FILTERS: Final = {
    "known": value_or_unknown, "number": format_number, "percent": format_percent,
    "when": format_time, "duration": format_duration,
    "byte_size": format_size, "in_url": quote_for_url, "machine_time": format_machine_time,
    "rough_duration": format_rough_duration,
}  # fmt: skip
