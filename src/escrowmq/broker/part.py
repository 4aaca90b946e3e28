"""What the parts of a broker have in common: when they are spoken to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from escrowmq.base.ports import Disk
from escrowmq.broker.peer import Peer
from escrowmq.delivery.delay_progress import NEVER_MS
from escrowmq.store.config_tables import Take

File = tuple[str, bytes]
"""A path and what is to stand there."""

NOTHING: Final[tuple[File, ...]] = ()


class Start(Protocol):
    """What there is to know of a start (broker/upkeep/start_checks)."""

    disk: Disk
    now_ms: int
    is_sound: bool
    """Whether nothing of the log was found damaged."""

    def take(self, path: str, take: Take) -> bool:
        """Take over a table; whether it was the newest."""

    def take_lesser(self, path: str, take: Take) -> None:
        """The same for a table that a start can do without."""

    def restore_groups(self, names: Iterable[str], now_ms: int) -> None:
        """Have groups be known that have messages in their hands."""


class Part:
    """A part of a broker; each overrides what concerns it."""

    name = ""
    """By which its failures are logged and counted."""

    def load(self, start: Start) -> None:
        """Take over what an earlier run has left. Store and tables are open."""

    def settle(self, now_ms: int) -> None:
        """The end of an input: finish what it has begun."""

    def lost(self, peer: Peer, now_ms: int) -> None:
        """A connection is gone."""

    def wake(self, now_ms: int) -> None:
        """Do what is due."""

    def wake_at_ms(self) -> int:
        """When something is due next."""
        return NEVER_MS

    def clock_leapt(self, by_ms: int) -> None:
        """The clock is set forward: what lasts for a span lasts no shorter by that."""

    def progress(self, now_ms: int) -> tuple[File, ...]:
        """What is to be saved of it now, as far as what that rests on is durable."""
        return NOTHING

    def last(self, now_ms: int) -> tuple[File, ...]:
        """What is still to be saved when the store is closed."""
        return self.progress(now_ms)
