"""Values as pages show them. What nobody knows is a word, never a number."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

from escrowmq.base.printable import printable
from escrowmq.base.spoken import moment, size_text, span
from escrowmq.console.charts import short

UNKNOWN: Final = "unknown"
_TEXT_MAX: Final = 64 * 1024
"""Bytes of a body that a page shows; the API has the rest."""

_HEX_MAX: Final = 4 * 1024
_HEX_ROW: Final = 16


def known(value: object) -> object:
    """The value, or that nobody knows it."""
    return UNKNOWN if value is None else value


def number(value: float | None) -> str:
    """A number for people: 1 234 567."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}".replace(",", "\u202f") if float(value).is_integer() else short(value)


def percent(value: float | None) -> str:
    """A part as a percentage."""
    return UNKNOWN if value is None else f"{value:.0%}"


def when(ms: int | None) -> str:
    """A moment for people; a dash when there is none."""
    return UNKNOWN if ms is None else moment(ms)


def machine_time(ms: int) -> str:
    """A moment for `<time datetime>`."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat()


def lasting(ms: int | None) -> str:
    """A span for people."""
    return UNKNOWN if ms is None else span(ms)


def roughly(ms: int) -> str:
    """A round span: 5 min, 2 h."""
    for unit_ms, unit in ((3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if ms >= unit_ms and ms % unit_ms == 0:
            return f"{ms // unit_ms} {unit}"
    return span(ms)


def sized(count: int | None) -> str:
    """So many bytes."""
    return UNKNOWN if count is None else size_text(count)


def in_url(name: object) -> str:
    """A name as one step of an address."""
    return quote(str(name), safe="")


def as_text(body: bytes) -> str | None:
    """A body as text; None when it is none."""
    try:
        text = body[:_TEXT_MAX].decode()
    except UnicodeDecodeError as error:
        if len(body) <= _TEXT_MAX or error.start < _TEXT_MAX - 4:
            return None
        text = body[: error.start].decode()
    return "\n".join(printable(line) for line in text.split("\n"))


def as_json(body: bytes) -> str | None:
    """A body as JSON with its structure shown; None when it is none, or too large to be shown."""
    if len(body) > _TEXT_MAX:
        return None
    try:
        return json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def as_hex(body: bytes) -> str:
    """The first bytes of a body as a dump."""
    rows = []
    for at in range(0, min(len(body), _HEX_MAX), _HEX_ROW):
        row = body[at : at + _HEX_ROW]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        rows.append(f"{at:08x}  {row.hex(' '):<47}  {letters}")
    return "\n".join(rows)


def cut_note(size: int, shown: int = _TEXT_MAX) -> str:
    """What a view of a body leaves out."""
    return f"the first {size_text(shown)} of {size_text(size)}" if size > shown else ""


FILTERS: Final = {
    "known": known, "number": number, "percent": percent, "when": when, "lasting": lasting,
    "sized": sized, "in_url": in_url, "machine_time": machine_time, "roughly": roughly,
}  # fmt: skip
