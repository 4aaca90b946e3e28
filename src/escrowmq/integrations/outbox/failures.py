"""Makes the errors that outboxes raise."""

from __future__ import annotations

from escrowmq.errors import EscrowMQError, MarkerNotWritten, UsageError
from escrowmq.integrations.outbox.steps import StepFailed, error_line
from escrowmq.integrations.outbox.tables import MARKERS


def marker_not_written_error(error: Exception) -> MarkerNotWritten:
    """Make the error for a marker that cannot be written; it is raised in place of the database's
    error."""
    if isinstance(error, MarkerNotWritten):
        return error
    if isinstance(error, EscrowMQError) and not isinstance(error, StepFailed):
        return MarkerNotWritten(f"the producer cannot send: {error}; nothing was sent")
    text = error_line(error)
    return MarkerNotWritten(
        f"the database did not take the marker, so nothing was sent: {text}; if the table "
        f"{MARKERS} is missing, create it by the migration or with create_tables() "
        "(docs/outbox.md), else roll back and run the transaction again"
    )


def outbox_closed_error() -> UsageError:
    """Make the error for a send with an outbox that is closed, or whose producer is closed."""
    return UsageError("the outbox is closed, or its producer is; make a new one")


def block_ended_error() -> UsageError:
    """Make the error for a send after the end of its block."""
    return UsageError(
        "the transaction has ended, and with it what can be sent in it; send inside the block"
    )
