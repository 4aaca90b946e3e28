"""What the parts of a broker have in common: when they are spoken to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.delivery.progress import NEVER_MS

if TYPE_CHECKING:
    from escrowmq.broker.opening import Opening
    from escrowmq.broker.peer import Peer

File = tuple[str, bytes]
"""A path and what is to stand there."""

NOTHING: Final[tuple[File, ...]] = ()


class Part:
    """A part of a broker; each overrides what concerns it."""

    name = ""
    """By which its failures are logged and counted."""

    def load(self, opening: Opening) -> None:
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

    def progress(self, now_ms: int) -> tuple[File, ...]:
        """What is to be saved of it now, as far as what that rests on is durable."""
        return NOTHING

    def last(self, now_ms: int) -> tuple[File, ...]:
        """What is still to be saved when the store is closed."""
        return self.progress(now_ms)
