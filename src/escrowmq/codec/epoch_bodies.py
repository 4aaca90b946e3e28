"""JSON bodies of the requests about epochs (docs/extensions.md)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from escrowmq.base.fixed_limits import EPOCH_TOKENS_MAX

Token = Annotated[str, Meta(min_length=1, max_length=64)]
_Count = Annotated[int, Meta(ge=0)]


class Epoch(msgspec.Struct, kw_only=True):
    """The identity of a batch: group, query, and number."""

    group: str
    epoch: str


class Decide(Epoch, kw_only=True):
    """Make the halves of these tokens visible; each must have the given number."""

    tokens: Annotated[dict[Token, _Count], Meta(max_length=EPOCH_TOKENS_MAX)]


class Abandon(Epoch, kw_only=True):
    """Drop the halves of these tokens."""

    tokens: Annotated[list[Token], Meta(max_length=EPOCH_TOKENS_MAX)]


class Decided(msgspec.Struct, kw_only=True):
    """The decision about an epoch."""

    decided: Literal["now", "before", "no"]
    tokens: dict[str, int]
    """The valid tokens. For batches before the last one they are no longer known."""

    count: int
    """The number of their messages."""


class Abandoned(msgspec.Struct, kw_only=True):
    """How many halves were dropped."""

    count: int
