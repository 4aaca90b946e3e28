"""JSON bodies of the requests about epochs of streaming queries (docs/extensions.md)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from escrowmq.base.fixed_limits import EPOCH_TOKENS_MAX

Token = Annotated[str, Meta(min_length=1, max_length=64)]
_Count = Annotated[int, Meta(ge=0)]


class EpochId(msgspec.Struct, kw_only=True):
    """Identifies an epoch: producer group, query name, and batch number."""

    group: str
    epoch: str


class DecideEpoch(EpochId, kw_only=True):
    """The request to make the halves of these tokens visible. Each token must have the given number
    of halves."""

    tokens: Annotated[dict[Token, _Count], Meta(max_length=EPOCH_TOKENS_MAX)]


class AbandonTokens(EpochId, kw_only=True):
    """The request to drop the halves of these tokens."""

    tokens: Annotated[list[Token], Meta(max_length=EPOCH_TOKENS_MAX)]


class EpochDecision(msgspec.Struct, kw_only=True):
    """The answer: the decision about an epoch."""

    decided: Literal["now", "before", "no"]
    tokens: dict[str, int]
    """The tokens that count. They are unknown for batches before the newest decided one."""

    count: int
    """The number of messages of these tokens."""


class AbandonedCount(msgspec.Struct, kw_only=True):
    """The answer to Abandon: the number of dropped halves."""

    count: int
