"""JSON bodies of the request to redeliver dead letters (docs/extensions.md)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

_Count = Annotated[int, Meta(ge=0)]


class DeadLetterSelector(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """Selects dead letters of one queue of a group."""

    group: Annotated[str, Meta(min_length=1)]
    topic: str = ""
    """Only letters that failed in this topic; all if empty."""
    queue_id: _Count = 0
    begin: _Count = 0
    end: int = -1
    """Only letters before this queue offset; -1 means all."""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    is_dry_run: bool = False


class DeadLetter(msgspec.Struct, rename="camel", kw_only=True):
    """One dead letter, and its state."""

    message_id: str
    offset_id: str
    topic: str
    """The topic where it failed; empty if unknown."""
    keys: str
    queue_id: int
    queue_offset: int
    died_ms: int
    status: Literal["dead", "redelivered", "done"] = "dead"
    """`dead`: not redelivered. `redelivered`: by this request. `done`: by an earlier request."""


class DeadLettersPage(msgspec.Struct, rename="camel", kw_only=True):
    """A page of dead letters, and the queue offset at which to continue; -1 at the end."""

    items: list[DeadLetter]
    next: int = -1
