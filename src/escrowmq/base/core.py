"""The interfaces between a shell and its core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from escrowmq.base.effects import Effect
from escrowmq.base.wire import Wire


@runtime_checkable
class AccountsCore(Protocol):
    """A core that knows accounts."""

    def proved(self, peer: int, account: str) -> None:
        """A connected peer has presented a certificate that is mapped to an account."""


@runtime_checkable
class GuardedCore(Protocol):
    """A core with access control."""

    def is_stranger(self, peer: int) -> bool:
        """Whether a peer, connected or about to be, has not proved an account yet; False without
        access control."""


@runtime_checkable
class Prompt(Protocol):
    """A core whose answers need not wait for everything that follows from their requests."""

    def set_writer(self, write: Callable[[int, list[bytes]], None]) -> None:
        """Set the function that writes to a peer at once, which the core may call while it
        processes an input. Nothing else may come in before that call returns, and it must not
        raise."""


@runtime_checkable
class DiallingCore(Protocol):
    """A core that wants to know why a dial has failed."""

    def dial_refused(self, peer: int, now_ms: int) -> None:
        """No server listens at the address of a peer. `lost` follows."""

    def dial_tls_failed(self, peer: int, fault: str, now_ms: int) -> None:
        """A dialled peer is there, and TLS with it has failed. `lost` follows."""


class Core(Protocol):
    """A state machine that processes (input, now); the shell performs its queued effects."""

    def connected(
        self, peer: int, host: str, port: int, now_ms: int, wire: Wire = Wire.REMOTING
    ) -> None:
        """A peer is connected, accepted or dialled, with this protocol."""

    def receive(self, peer: int, data: bytes, now_ms: int, waited_ms: int = 0) -> None:
        """Bytes from a peer, which have waited to be read for at least this long."""

    def lost(self, peer: int, now_ms: int) -> None:
        """A peer is lost, or could not be dialled."""

    def synced(self, log_offset: int, now_ms: int) -> None:
        """A Sync effect was carried out."""

    def sync_failed(self, reason: str, now_ms: int) -> None:
        """A Sync effect failed; none of it may be taken for durable."""

    def wake(self, now_ms: int) -> None:
        """Do what is due."""

    def wake_at_ms(self) -> int:
        """The shell calls `wake` by this time."""

    def clock_leapt(self, by_ms: int) -> None:
        """The clock was set forward by this much: timeouts keep their full length."""

    def take_effects(self) -> list[Effect]:
        """Return, and forget, the queued effects."""
