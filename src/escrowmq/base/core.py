"""The interfaces between a shell and its core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from escrowmq.base.effects import Effect
from escrowmq.base.wire import Wire


@runtime_checkable
class AccountsCore(Protocol):
    """A core that knows accounts."""

    def set_certificate_account(self, peer: int, account: str) -> None:
        """Record that a peer has proved an account by its certificate. The peer is connected
        already."""


@runtime_checkable
class GuardedCore(Protocol):
    """A core with access control."""

    def is_stranger(self, peer: int) -> bool:
        """Whether a peer, connected or about to be, has not proved an account yet; False without
        access control."""


@runtime_checkable
class PromptCore(Protocol):
    """A core that may send answers before it has done all the work that follows from the
    requests."""

    def set_writer(self, write: Callable[[int, list[bytes]], None]) -> None:
        """Set the function that writes to a peer immediately. The core may call it while it
        processes an input. No other input may be processed before the function returns, and it must
        not raise."""


@runtime_checkable
class DiallingCore(Protocol):
    """A core that is informed why a connection that it requested could not be opened."""

    def dial_refused(self, peer: int, now_ms: int) -> None:
        """Note that no server listens at the address of a peer. `disconnected` is called next."""

    def dial_tls_failed(self, peer: int, fault: str, now_ms: int) -> None:
        """Note that a server was reached, but TLS with it failed. `disconnected` is called next."""


class Core(Protocol):
    """A state machine. Each method gets an input and the time; the shell then performs the queued
    effects."""

    def connected(
        self, peer: int, host: str, port: int, now_ms: int, wire: Wire = Wire.REMOTING
    ) -> None:
        """Add a connected peer with this protocol; the connection was accepted or opened."""

    def receive(self, peer: int, data: bytes, now_ms: int, waited_ms: int = 0) -> None:
        """Process bytes from a peer, which have waited to be read for at least `waited_ms`."""

    def disconnected(self, peer: int, now_ms: int) -> None:
        """Remove a peer that is lost, or could not be reached."""

    def sync_finished(self, log_offset: int, now_ms: int) -> None:
        """Continue after the shell has carried out a Sync effect."""

    def sync_failed(self, reason: str, now_ms: int) -> None:
        """Continue after a Sync effect failed; none of its data may be treated as durable."""

    def wake(self, now_ms: int) -> None:
        """Do everything that is due now."""

    def wake_at_ms(self) -> int:
        """Return the time by which the shell must call `wake`."""

    def clock_leapt(self, by_ms: int) -> None:
        """Shift all timers by a forward jump of the clock, so that timeouts keep their full
        length."""

    def take_effects(self) -> list[Effect]:
        """Return, and forget, the queued effects."""
