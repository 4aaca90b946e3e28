"""The result that every preview returns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

ROWS_MAX: Final = 20
"""A preview lists at most this many rows; the others are only counted."""


class PreviewRow(msgspec.Struct, kw_only=True, rename="camel"):
    """One row of a preview: a thing that the change would affect."""

    what: str
    before: str = ""
    after: str = ""


class Preview(msgspec.Struct, kw_only=True, rename="camel"):
    """The description of what a change would do."""

    said: str
    """A sentence that describes the change."""
    count: int | None = None
    """Number of affected things; null if it is not known."""
    rows: list[PreviewRow] = []
    """The first of the affected things."""


def format_value(value: object) -> str:
    """Format a value as people write it in settings."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def format_by_broker(values: Iterable[tuple[str, str]]) -> str:
    """Format the values of several brokers as one text; brokers are named only if their values
    differ."""
    found = list(values)
    distinct = {value for _, value in found}
    if len(distinct) <= 1:
        return distinct.pop() if distinct else ""
    return ", ".join(f"{value} on {broker}" for broker, value in found)
