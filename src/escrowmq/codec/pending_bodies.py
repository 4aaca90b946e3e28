"""JSON bodies of the requests about pending transactions (docs/extensions.md)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

PAGE_MAX = 1000
_Millis = Annotated[int, Meta(ge=0)]


class Filter(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """Selects halves; fields that are not given match all."""

    topic: str | None = None
    group: str | None = None
    transaction: str | None = None
    state: Literal["waiting", "asked", "parked"] | None = None
    min_age_ms: _Millis | None = None
    max_age_ms: _Millis | None = None
    after: int = -1
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = 100


class Which(Filter, kw_only=True):
    """One transaction, by its signed id or by a message; or those that match a filter."""

    id: str | None = None
    message_id: str | None = None
    offset_id: str | None = None
    verdict: Literal["commit", "rollback"] | None = None
    reason: str = ""


class PendingEvent(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """An event of a half."""

    at_ms: int
    what: str
    who: str = ""
    detail: str = ""


class Item(msgspec.Struct, rename="camel", kw_only=True):
    """One half message, or one that was given up."""

    id: str = ""
    half_offset: int
    log_offset: int
    offset_id: str
    topic: str
    queue_id: int
    group: str
    message_id: str
    keys: str = ""
    tags: str = ""
    transaction: str = ""
    born_ms: int
    stored_ms: int
    age_ms: int
    body_size: int
    checks: int = 0
    next_check_ms: int = -1
    origin: str = ""
    state: str
    ended_ms: int = -1
    """When it was settled; -1 while it is pending, or if no op record near it names it."""
    ended_by: Literal["", "producer", "check", "operator", "broker"] = ""
    """Who settled it: its producer on its own, or asked by a check; an operator; or the broker,
    which gives up after the last check. Empty if unknown, as with RocketMQ's op records."""
    ended_who: str = ""
    """The operator's address, preceded by the account and an `@`, or the client that was asked."""
    reason: str = ""
    """The operator's reason."""
    events: list[PendingEvent] = []


class PendingPage(msgspec.Struct, rename="camel", kw_only=True):
    """Items, and the offset after which to continue; -1 at the end."""

    items: list[Item]
    next: int = -1


class PendingCounts(msgspec.Struct, rename="camel", kw_only=True):
    """Numbers of pending halves."""

    count: int
    parked: int
    oldest_ms: int
    """When the oldest was stored; -1 if there are none."""

    by_topic: dict[str, int]
    by_group: dict[str, int]
    parked_by_group: dict[str, int] = {}
    next: int = -1
    """Where to continue if this counts only a part."""


class Done(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """The result of a change."""

    count: int = 0
    outcome: str = ""
    key: int = 0
    next: int = -1
