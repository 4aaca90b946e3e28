"""The answer of every preview."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

ROWS_MAX: Final = 20
"""Rows that a preview lists at most; the others are only counted."""


class Row(msgspec.Struct, kw_only=True, rename="camel"):
    """One thing that a change does, or would do."""

    what: str
    before: str = ""
    after: str = ""


class Preview(msgspec.Struct, kw_only=True, rename="camel"):
    """What a change would do."""

    said: str
    """A sentence for people."""
    count: int | None = None
    """How many things; null if they were not counted."""
    rows: list[Row] = []
    """The first of them."""


def shown(value: object) -> str:
    """A value as people write it in settings."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def spread(values: Iterable[tuple[str, str]]) -> str:
    """One text from the values of several brokers, which are named where the values differ."""
    found = list(values)
    distinct = {value for _, value in found}
    if len(distinct) <= 1:
        return distinct.pop() if distinct else ""
    return ", ".join(f"{value} on {broker}" for broker, value in found)
