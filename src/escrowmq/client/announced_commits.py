"""Compares the commits that producers announced with those that consumers processed. Several
packages share this code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from escrowmq.errors import ResponseError, UsageError

if TYPE_CHECKING:
    from escrowmq.client.blocking.admin import Admin

MARK: Final = "@"
"""The character between a message's id and its topic; neither can contain it."""

ROLLED_BACK: Final = {"rolled_back"}
COMMITTED: Final = {"committed"}


class Member(NamedTuple):
    """An entry of a set of announced or consumed commits: the id and the topic of one message."""

    message_id: str
    topic: str

    def __str__(self) -> str:
        return f"{self.message_id}{MARK}{self.topic}"


def parse_member(text: str) -> Member:
    """Parse `<message id>@<topic>`; raises UsageError if it is something else."""
    message_id, mark, topic = text.partition(MARK)
    if not (message_id and mark and topic):
        raise UsageError(f"{text[:128]!r} names no message; <message id>{MARK}<topic> is expected")
    return Member(message_id, topic)


def recorded_outcomes(admin: Admin, member: Member, *, broker: str = "") -> set[str]:
    """Return the outcomes that brokers have recorded for the transaction of a message: `committed`
    or `rolled_back`, or the state of a pending transaction. Empty if no broker remembers the
    transaction; RocketMQ's brokers never report it."""
    try:
        found = admin.transactions.show(member.message_id, topic=member.topic, broker=broker)
    except ResponseError:
        return set()
    return {one.state for one in found}


class Compared(NamedTuple):
    """The result of comparing one batch of announced messages with the consumed ones."""

    lost: list[str]
    """Messages announced but not consumed."""

    both_count: int
    """Number of announced messages that were consumed."""


class Sets(Protocol):
    """The sets of announced and consumed messages."""

    def announce(self, members: Iterable[str]) -> None:
        """Add announced commits."""

    def consume(self, members: Iterable[str]) -> None:
        """Add consumed messages."""

    def compare(self) -> Iterator[Compared]:
        """Remove the messages that are in both sets. Yield one result for each batch of announced
        messages."""
