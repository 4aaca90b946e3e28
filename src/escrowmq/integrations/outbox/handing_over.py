"""What the integrations have in common when a transaction's messages are handed to the brokers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from escrowmq.client.core.message import Message, ReceivedMessage
from escrowmq.client.core.sending import Outcome
from escrowmq.errors import EscrowMQError, MarkerNotWritten, UsageError
from escrowmq.integrations.outbox.steps import StepFailed
from escrowmq.integrations.outbox.tables import MARKERS

_log = logging.getLogger(__name__)


class OnTheirWay(Protocol):
    """Messages on their way (`escrowmq.client.outbox_messages`), as plain code sees them."""

    @property
    def key(self) -> str:
        """Of the marker."""

    def send(self, messages: Sequence[Message]) -> None:
        """Store them, invisible."""

    def leave(self) -> None:
        """The database is about to commit."""

    def committed(self) -> None:
        """The database has committed."""


def not_written(error: Exception) -> MarkerNotWritten:
    """What is raised in the place of the database's error when it takes no marker."""
    if isinstance(error, MarkerNotWritten):
        return error
    if isinstance(error, EscrowMQError) and not isinstance(error, StepFailed):
        return MarkerNotWritten(f"the producer cannot send: {error}; nothing was sent")
    told = " ".join(str(error).split())
    return MarkerNotWritten(
        f"the database did not take the marker, so nothing was sent: {told}; if the table "
        f"{MARKERS} is missing, make it by the migration or with create_tables() (docs/outbox.md), "
        "else roll back and run the transaction again"
    )


def not_known(message: ReceivedMessage, error: StepFailed) -> Outcome:
    """The answer to a check that the database could not be asked about."""
    _log.warning(
        "what became of message %s of %r is not known, as the database cannot be asked: %s; the "
        "broker will ask again",
        message.message_id, message.topic, error,
    )  # fmt: skip
    return Outcome.UNKNOWN


def block_is_over() -> UsageError:
    """For whoever sends behind the end of a block."""
    return UsageError(
        "the transaction has ended, and with it what can be sent in it; send inside the block"
    )
