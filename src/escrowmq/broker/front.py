"""A front: the broker's side of one protocol. Handlers do not depend on a protocol."""

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
        """Do the work of its dialogues that is due."""

    def wake_at_ms(self) -> int:
        """When `wake` is due next."""


@runtime_checkable
class TimedFront(Protocol):
    """A front that keeps times of its own."""

    def clock_leapt(self, by_ms: int, now_ms: int) -> None:
        """The clock is set forward, from now on: spans keep their full length."""


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
    """A caller that is informed why a connection could not be opened."""

    def refused(self, peer: int, now_ms: int) -> None:
        """No server listens at the address. `unreached` follows."""

    def tls_failed(self, peer: int, fault: str, now_ms: int) -> None:
        """The server exists, but TLS with it has failed. `unreached` follows."""


class CopyFront(Front, Protocol):
    """The front of copies of the log (broker/replication)."""

    @property
    def fault(self) -> str:
        """The reason why a slave copies nothing; empty while it copies, and at a master."""

    def families(self) -> list[Family]:
        """The metrics of the copies."""

    def take(self) -> list[Effect]:
        """Return the effects at the end of an input, including bytes to copies."""
