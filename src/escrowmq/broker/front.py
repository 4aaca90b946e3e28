"""A front: one protocol's way to the broker. The handlers behind it know of none."""

from __future__ import annotations

from typing import Protocol

from escrowmq.base.effects import Effect
from escrowmq.base.measure import Family
from escrowmq.broker.dialogue import Dialogue
from escrowmq.broker.peer import Peer


class Front(Protocol):
    """Begins dialogues with those who come in by its doors."""

    def begin(self, peer: Peer) -> Dialogue:
        """Somebody is there."""

    def wake(self, now_ms: int) -> None:
        """Whatever is due in its dialogues."""

    def wake_at_ms(self) -> int:
        """When that is."""


class Caller(Protocol):
    """Dials others on the broker's account."""

    def calls(self, peer: int) -> bool:
        """Whether a connection is one of these."""

    def connected(self, peer: int, now_ms: int) -> None:
        """One of them is made."""

    def unreached(self, peer: int, now_ms: int) -> None:
        """One of them is gone, or was not made."""


class CopyFront(Front, Protocol):
    """The front of copies of the log (broker/replication)."""

    @property
    def fault(self) -> str:
        """Of a slave: why nothing is copied; empty while it is, and at a master."""

    def families(self) -> list[Family]:
        """Figures for whoever watches the broker."""

    def take(self) -> list[Effect]:
        """What is to be done at the end of an input, and what copies are sent, or say, of it."""
