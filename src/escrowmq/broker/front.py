"""Interfaces of fronts: a front is the broker's side of one protocol. Handlers do not depend on a
protocol."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from escrowmq.base.effects import Effect
from escrowmq.base.measure import MetricFamily
from escrowmq.broker.dialogue import Dialogue
from escrowmq.broker.peer import Peer


class Front(Protocol):
    """Creates dialogues with the clients of its listeners."""

    def create_dialogue(self, peer: Peer) -> Dialogue:
        """Create the dialogue with a client that has connected."""

    def wake(self, now_ms: int) -> None:
        """Do the due work of all its dialogues."""

    def wake_at_ms(self) -> int:
        """When `wake` is due next."""


@runtime_checkable
class TimedFront(Protocol):
    """A front that keeps deadlines of its own."""

    def clock_leapt(self, by_ms: int, now_ms: int) -> None:
        """Shift all deadlines by the clock's jump: timeouts keep their full length."""


class Dialler(Protocol):
    """A part that opens connections to other servers."""

    def has_dialled(self, peer: int) -> bool:
        """Whether this part has opened the connection."""

    def connected(self, peer: int, now_ms: int) -> None:
        """Handle the opened connection."""

    def connection_failed(self, peer: int, now_ms: int) -> None:
        """Handle the loss of the connection, or the failure to open it."""


@runtime_checkable
class DialFaultListener(Protocol):
    """A caller that needs to know why a connection could not be opened."""

    def dial_refused(self, peer: int, now_ms: int) -> None:
        """Handle that no server listens at the address. `connection_failed` is called next."""

    def dial_tls_failed(self, peer: int, fault: str, now_ms: int) -> None:
        """Handle that TLS with the server has failed. `connection_failed` is called next."""


class CopyFront(Front, Protocol):
    """The front of a part that replicates the log (broker/replication)."""

    @property
    def fault(self) -> str:
        """The reason why this slave copies nothing; empty while it copies, and at a master."""

    def metric_families(self) -> list[MetricFamily]:
        """Return the metrics of replication."""

    def take_effects(self) -> list[Effect]:
        """Return the effects of an input at its end, including bytes for the copies."""
