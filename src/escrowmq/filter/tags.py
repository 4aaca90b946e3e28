"""Tag expressions: `A || B`, or `*` for everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from escrowmq.filter.operands import FilterError

ALL: Final = "*"
_BETWEEN: Final = "||"
_BLANKS: Final = "".join(map(chr, range(33)))
"""What Java's `String.trim` takes away: everything up to the blank."""


class TagFilter(msgspec.Struct, frozen=True):
    """The tags that a subscription asks for, and their codes in the consume queue."""

    expression: str
    tags: frozenset[str]
    codes: frozenset[int]

    @property
    def is_all(self) -> bool:
        """Whether every message passes."""
        return self.expression == ALL

    def matches_code(self, tags_code: int) -> bool:
        """Whether an entry of the consume queue may belong to a wanted message: codes of
        different tags can be equal, so clients compare the tag itself once more."""
        return self.expression == ALL or _int32(tags_code) in self.codes

    def matches(self, tag: str | None) -> bool:
        """Whether a message with this tag is wanted."""
        return self.expression == ALL or tag in self.tags


def parse_tags(expression: str | None, *, code_of: Callable[[str], int]) -> TagFilter:
    """The filter that a tag expression stands for; `code_of` is the hash of consume queues.

    Blanks alone are a filter that nothing passes, as at RocketMQ (FilterAPI, 5.3.3)."""
    if not expression or expression == ALL:
        return TagFilter(ALL, frozenset(), frozenset())
    # Java's split drops what is empty at the end, so that `||` alone gives no parts at all.
    if not expression.replace(_BETWEEN, ""):
        raise FilterError(
            f"tag expression {expression!r} names no tag; write `A || B`, or `*` for all", 0
        )
    parts = (part.strip(_BLANKS) for part in expression.split(_BETWEEN))
    tags = frozenset(part for part in parts if part)
    return TagFilter(expression, tags, frozenset(map(code_of, tags)))


def format_tags(tags: frozenset[str]) -> str:
    """The expression that stands for a set of tags; an empty set stands for all."""
    return f" {_BETWEEN} ".join(sorted(tags)) if tags else ALL


def _int32(number: int) -> int:
    # The queue keeps 64 bits, of which RocketMQ (DefaultMessageFilter) compares the low half.
    number &= 0xFFFFFFFF
    return number - 0x1_0000_0000 if number & 0x8000_0000 else number
