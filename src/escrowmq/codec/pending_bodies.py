"""JSON bodies of the requests about pending transactions (docs/extensions.md)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

PAGE_MAX = 1000
_Millis = Annotated[int, Meta(ge=0)]


class HalfFilter(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """Selects halves. Fields that are not given match all."""

    topic: str | None = None
    group: str | None = None
    transaction: str | None = None
    state: Literal["waiting", "asked", "parked"] | None = None
    min_age_ms: _Millis | None = None
    max_age_ms: _Millis | None = None
    after: int = -1
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = 100


class TransactionSelector(HalfFilter, kw_only=True):
    """Names one transaction, by its signed id or by a message, or selects those that match a
    filter."""

    id: str | None = None
    message_id: str | None = None
    offset_id: str | None = None
    verdict: Literal["commit", "rollback"] | None = None
    reason: str = ""


class PendingEvent(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """One event in the life of a half."""

    at_ms: int
    what: str
    who: str = ""
    detail: str = ""


class TransactionItem(msgspec.Struct, rename="camel", kw_only=True):
    """A half message, pending or ended, or a discarded one."""

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
    """The time when it was ended; -1 while it is pending, or if no op record that names it was
    found."""
    ended_by: Literal["", "producer", "check", "operator", "broker"] = ""
    """Who ended it: `producer`; `check`, the producer's answer to one; `operator`; or `broker`,
    which discards after the last check. Empty if unknown, as with RocketMQ's op records."""
    ended_who: str = ""
    """The operator's address, preceded by the account and an `@`, or the client that answered the
    check."""
    reason: str = ""
    """The operator's reason for ending it."""
    events: list[PendingEvent] = []


class PendingPage(msgspec.Struct, rename="camel", kw_only=True):
    """A page of items, and the offset after which to continue; -1 at the end."""

    items: list[TransactionItem]
    next: int = -1


class PendingCounts(msgspec.Struct, rename="camel", kw_only=True):
    """The numbers of pending halves."""

    count: int
    parked: int
    oldest_ms: int
    """The store time of the oldest; -1 if there are none."""

    by_topic: dict[str, int]
    by_group: dict[str, int]
    parked_by_group: dict[str, int] = {}
    next: int = -1
    """The offset after which to continue if only a part was counted; -1 if all were."""


class ChangeResult(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """The result of a change of transactions."""

    count: int = 0
    outcome: str = ""
    key: int = 0
    next: int = -1
