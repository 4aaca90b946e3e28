"""Tag expressions: `A || B`, or `*` for everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from escrowmq.filter.operands import FilterError

ALL: Final = "*"
_BETWEEN: Final = "||"
_BLANKS: Final = "".join(map(chr, range(33)))
"""The characters that Java's `String.trim` removes: all up to the blank."""


class TagFilter(msgspec.Struct, frozen=True):
    """The tags of a subscription, and their hashes in the consume queue."""

    expression: str
    tags: frozenset[str]
    codes: frozenset[int]

    @property
    def is_all(self) -> bool:
        """Whether every message matches."""
        return self.expression == ALL

    def matches_code(self, tags_code: int) -> bool:
        """Whether a message with this tag hash may match. Different tags can have the same hash, so
        clients compare the tag itself again."""
        return self.expression == ALL or _int32(tags_code) in self.codes

    def matches(self, tag: str | None) -> bool:
        """Whether a message with this tag matches."""
        return self.expression == ALL or tag in self.tags


def parse_tags(expression: str | None, *, code_of: Callable[[str], int]) -> TagFilter:
    """Parse a tag expression. `code_of` computes the hash that consume queues store. An expression
    of blanks matches nothing, as in RocketMQ (FilterAPI, 5.3.3)."""
    if not expression or expression == ALL:
        return TagFilter(ALL, frozenset(), frozenset())
    # Java's split drops empty parts at the end, so that `||` alone gives no parts at all.
    if not expression.replace(_BETWEEN, ""):
        raise FilterError(
            f"tag expression {expression!r} names no tag; write `A || B`, or `*` for all", 0
        )
    parts = (part.strip(_BLANKS) for part in expression.split(_BETWEEN))
    tags = frozenset(part for part in parts if part)
    return TagFilter(expression, tags, frozenset(map(code_of, tags)))


def format_tags(tags: frozenset[str]) -> str:
    """Return the expression of a set of tags; an empty set means all."""
    return f" {_BETWEEN} ".join(sorted(tags)) if tags else ALL


def _int32(number: int) -> int:
    # The queue keeps 64 bits, of which RocketMQ (DefaultMessageFilter) compares the low half.
    number &= 0xFFFFFFFF
    return number - 0x1_0000_0000 if number & 0x8000_0000 else number
