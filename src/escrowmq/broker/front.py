"""A front: the broker's side of one protocol. The handlers behind it know no protocol."""

from __future__ import annotations

from typing import Protocol

from escrowmq.base.effects import Effect
from escrowmq.base.measure import Family
from escrowmq.broker.dialogue import Dialogue
from escrowmq.broker.peer import Peer


class Front(Protocol):
    """Begins dialogues with the clients of its listeners."""

    def begin(self, peer: Peer) -> Dialogue:
        """A client has connected."""

    def wake(self, now_ms: int) -> None:
        """Do what is due in its dialogues."""

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
