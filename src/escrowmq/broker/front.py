"""A front: the broker's side of one protocol. The handlers behind it know no protocol."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

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
    """A part that opens connections to other servers."""

    def calls(self, peer: int) -> bool:
        """Whether this part has opened the connection."""

    def connected(self, peer: int, now_ms: int) -> None:
        """The connection was opened."""

    def unreached(self, peer: int, now_ms: int) -> None:
        """The connection is lost, or could not be opened."""


@runtime_checkable
class Refused(Protocol):
    """A caller that wants to know why a connection could not be opened."""

    def refused(self, peer: int, now_ms: int) -> None:
        """A connection was refused. `unreached` follows."""

    def distrusted(self, peer: int, fault: str, now_ms: int) -> None:
        """The server is there, and TLS with it has failed. `unreached` follows."""


class CopyFront(Front, Protocol):
    """The front of copies of the log (broker/replication)."""

    @property
    def fault(self) -> str:
        """Of a slave: why nothing is copied; empty while it is, and at a master."""

    def families(self) -> list[Family]:
        """The metrics of the copies."""

    def take(self) -> list[Effect]:
        """The effects at the end of an input, among them what the copies send."""
