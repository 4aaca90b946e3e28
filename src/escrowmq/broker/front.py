"""A front: one protocol's way to the broker. The handlers behind it know of none."""

from __future__ import annotations

from typing import Protocol

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
