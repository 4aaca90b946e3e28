"""What a shell holds: a core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from escrowmq.base.effects import Effect
from escrowmq.base.wire import Wire


@runtime_checkable
class Proving(Protocol):
    """A core that knows accounts."""

    def proved(self, peer: int, account: str) -> None:
        """A peer that is connected has shown a certificate that stands for an account."""


@runtime_checkable
class Judging(Protocol):
    """A core that lets nobody do anything who has not proved who he is."""

    def is_stranger(self, peer: int) -> bool:
        """Whether a peer has still to prove it, be it connected or only about to be; nobody has to
        where everything is open."""


@runtime_checkable
class Prompt(Protocol):
    """A core whose answers need not wait for all that follows from their requests."""

    def leave_by(self, say: Callable[[int, list[bytes]], None]) -> None:
        """What writes to a peer at once, which it may call while it works on an input. Nothing else
        may come in before that call returns, and it raises nothing."""


class Core(Protocol):
    """A state machine fed with (input, now); the shell performs the effects that it queues."""

    def connected(
        self, peer: int, host: str, port: int, now_ms: int, wire: Wire = Wire.REMOTING
    ) -> None:
        """A peer is there: accepted, or dialled on our behalf, and speaks so."""

    def receive(self, peer: int, data: bytes, now_ms: int, waited_ms: int = 0) -> None:
        """Bytes from a peer, which had to wait for at least so long to be read."""

    def lost(self, peer: int, now_ms: int) -> None:
        """A peer is gone, or could not be reached."""

    def synced(self, log_offset: int, now_ms: int) -> None:
        """A Sync effect was carried out."""

    def sync_failed(self, reason: str, now_ms: int) -> None:
        """A Sync effect failed; nothing of it may be taken for durable."""

    def wake(self, now_ms: int) -> None:
        """Time has come for whatever was due."""

    def wake_at_ms(self) -> int:
        """The shell calls `wake` no later than this."""

    def take_effects(self) -> list[Effect]:
        """Hand over, and forget, what is to be done."""
