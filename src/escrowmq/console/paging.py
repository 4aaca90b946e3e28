"""Cuts long lists into pages: items are sorted and cut before their details are looked up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
from msgspec import Meta

from escrowmq.console.answers import Answer
from escrowmq.errors import UsageError

T = TypeVar("T")
SIZE_MAX = 200


class Paging(msgspec.Struct, kw_only=True):
    """Selects the part of a list to show."""

    page: Annotated[int, Meta(ge=1, description="the first is 1")] = 1
    size: Annotated[int, Meta(ge=1, le=SIZE_MAX, description="items per page")] = 50
    sort: Annotated[str, Meta(description="the column to sort by")] = ""
    order: Literal["up", "down"] = "up"


class Listed(Answer, Generic[T], kw_only=True):
    """One page of a list."""

    items: list[T]
    total: int | None
    """Number of all items; null if only the existence of a next page is known."""
    page: int
    pages: int | None
    has_more: bool = False


def cut_page(items: Sequence[T], wanted: Paging) -> Listed[T]:
    """Return the requested page of a list; an empty page after the end."""
    pages = max(1, -(-len(items) // wanted.size))
    first = (wanted.page - 1) * wanted.size
    return Listed(
        items=list(items[first : first + wanted.size]),
        total=len(items),
        page=wanted.page,
        pages=pages,
        has_more=wanted.page < pages,
    )


def sort_items(
    items: Sequence[T], wanted: Paging, by: dict[str, Callable[[T], Any]], default: str
) -> list[T]:
    """Sort items by a column; unknown values come last in either direction. Raises UsageError if
    there is no such column."""
    column = wanted.sort or default
    if column not in by:
        raise UsageError(f"sort={column!r}; one of {', '.join(by)} is expected")
    key = by[column]
    known = [item for item in items if key(item) is not None]
    unknown = [item for item in items if key(item) is None]
    return sorted(known, key=key, reverse=wanted.order == "down") + unknown
