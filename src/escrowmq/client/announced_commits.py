"""Commits that producers announced, beside what was consumed: what the rooms that compare both have
in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from escrowmq.errors import ResponseError, UsageError

if TYPE_CHECKING:
    from escrowmq.client.blocking.admin import Admin

MARK: Final = "@"
"""Between a message's id and its topic; ids have none, and topics may have none either."""

ROLLED_BACK: Final = {"rolled_back"}
COMMITTED: Final = {"committed"}


class Member(NamedTuple):
    """Which message."""

    message_id: str
    topic: str

    def __str__(self) -> str:
        return f"{self.message_id}{MARK}{self.topic}"


def parse_member(text: str) -> Member:
    """The message that a text names; UsageError when it names none."""
    message_id, mark, topic = text.partition(MARK)
    if not (message_id and mark and topic):
        raise UsageError(f"{text[:128]!r} names no message; it is <message id>{MARK}<topic>")
    return Member(message_id, topic)


def ended_as(admin: Admin, member: Member, *, broker: str = "") -> set[str]:
    """How brokers have a transaction on record, as `committed` or `rolled_back`, or what it waits
    for. RocketMQ's brokers cannot tell, and one that was settled long ago may be forgotten: then
    nothing is known."""
    try:
        found = admin.transactions.show(member.message_id, topic=member.topic, broker=broker)
    except ResponseError:
        return set()
    return {one.state for one in found}


class Compared(NamedTuple):
    """Some of what was announced."""

    lost: list[str]
    """Not consumed."""

    both_count: int
    """How many others were consumed."""


class Sets(Protocol):
    """What is announced and what is consumed."""

    def announce(self, members: Iterable[str]) -> None:
        """These commits were announced."""

    def consume(self, members: Iterable[str]) -> None:
        """These messages were consumed."""

    def compare(self) -> Iterator[Compared]:
        """Take away what is in both; what is announced, some at a time."""
