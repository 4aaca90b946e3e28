"""A message as a member of the sets: its id and its topic in one text."""

from __future__ import annotations

from typing import Final, NamedTuple

from escrowmq.errors import UsageError

_MARK: Final = "@"
"""Ids have none; topics may have none either."""


class Member(NamedTuple):
    """Which message."""

    message_id: str
    topic: str

    def __str__(self) -> str:
        return f"{self.message_id}{_MARK}{self.topic}"


def parse_member(text: str) -> Member:
    """The message that a text names; UsageError when it names none."""
    message_id, mark, topic = text.partition(_MARK)
    if not (message_id and mark and topic):
        raise UsageError(f"{text[:128]!r} names no message; it is <message id>{_MARK}<topic>")
    return Member(message_id, topic)
