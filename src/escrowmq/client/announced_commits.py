"""Commits that producers announced, compared with the consumed ones: code shared by all packages
that compare both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from escrowmq.errors import ResponseError, UsageError

if TYPE_CHECKING:
    from escrowmq.client.blocking.admin import Admin

MARK: Final = "@"
"""Separates a message's id from its topic; neither can contain it."""

ROLLED_BACK: Final = {"rolled_back"}
COMMITTED: Final = {"committed"}


class Member(NamedTuple):
    """A member of a set of announced commits: the message that it stands for."""

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


def ended_as(admin: Admin, member: Member, *, broker: str = "") -> set[str]:
    """Outcomes that brokers have recorded, as `committed` or `rolled_back`, or the state of a
    pending one. RocketMQ's brokers do not report this, and long-settled transactions may be
    forgotten: then there is no entry."""
    try:
        found = admin.transactions.show(member.message_id, topic=member.topic, broker=broker)
    except ResponseError:
        return set()
    return {one.state for one in found}


class Compared(NamedTuple):
    """One batch of announced commits, compared."""

    lost: list[str]
    """Announced and not consumed."""

    both_count: int
    """How many others were consumed."""


class Sets(Protocol):
    """The sets of announced and consumed messages."""

    def announce(self, members: Iterable[str]) -> None:
        """Add announced commits."""

    def consume(self, members: Iterable[str]) -> None:
        """Add consumed messages."""

    def compare(self) -> Iterator[Compared]:
        """Remove what is in both sets; yield what is announced, in batches."""
