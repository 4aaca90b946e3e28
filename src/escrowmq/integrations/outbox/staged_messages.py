"""The messages of a transaction between their sending and its commit."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from escrowmq.client.core.message import Message


class StagedMessages(Protocol):
    """Messages that are being stored (`escrowmq.client.outbox_messages`), as blocking code sees
    them."""

    @property
    def key(self) -> str:
        """The marker's key."""

    @property
    def brokers(self) -> Collection[str]:
        """The brokers that have stored them."""

    def begin(self, messages: Sequence[Message]) -> None:
        """Start to store them, invisible."""

    def stored(self) -> None:
        """Wait until they are stored. If one cannot be, all are rolled back."""

    def abandon(self) -> None:
        """The database will not commit."""

    def leave(self) -> None:
        """The database is about to commit."""

    def committed(self) -> None:
        """The database has committed: report it to the brokers, without waiting."""
