"""The messages of a transaction between their sending and its commit."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from escrowmq.client.core.message import Message


class StagedMessages(Protocol):
    """The messages of one transaction while they are stored at brokers
    (`escrowmq.client.outbox_messages`), for blocking code."""

    @property
    def key(self) -> str:
        """The marker's key."""

    @property
    def broker_names(self) -> Collection[str]:
        """The brokers that have stored messages."""

    def validate(self, messages: Sequence[Message]) -> None:
        """Raise InvalidMessage if no broker would accept one of the messages."""

    def start_storing(self, messages: Sequence[Message]) -> None:
        """Start to store the messages, invisible."""

    def wait_until_stored(self) -> None:
        """Wait until the messages are stored. If one cannot be, all are rolled back."""

    def abandon(self) -> None:
        """Roll back the messages, because the database will not commit."""

    def leave_to_marker(self) -> None:
        """Leave the decision to the marker from now on, because the database is about to commit."""

    def report_commit(self) -> None:
        """Report the database's commit to the brokers, without waiting."""
