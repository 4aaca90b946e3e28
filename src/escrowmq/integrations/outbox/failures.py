"""Makes the errors that outboxes raise, and logs checks that cannot be answered."""

from __future__ import annotations

import logging

from escrowmq.base.own_properties import MARKER
from escrowmq.client.core.message import ReceivedMessage
from escrowmq.client.core.sending import Outcome
from escrowmq.errors import EscrowMQError, MarkerNotWritten, UsageError
from escrowmq.integrations.outbox.steps import StepFailed
from escrowmq.integrations.outbox.tables import MARKERS

_log = logging.getLogger(__name__)


def not_written(error: Exception) -> MarkerNotWritten:
    """Make the error that is raised instead of the database's own if the marker cannot be
    written."""
    if isinstance(error, MarkerNotWritten):
        return error
    if isinstance(error, EscrowMQError) and not isinstance(error, StepFailed):
        return MarkerNotWritten(f"the producer cannot send: {error}; nothing was sent")
    told = " ".join(str(error).split())
    return MarkerNotWritten(
        f"the database did not take the marker, so nothing was sent: {told}; if the table "
        f"{MARKERS} is missing, create it by the migration or with create_tables() "
        "(docs/outbox.md), else roll back and run the transaction again"
    )


def not_known(message: ReceivedMessage, error: StepFailed) -> Outcome:
    """Log that the database could not answer a check; return UNKNOWN."""
    _log.warning(
        "the outcome of message %s of %r is unknown, because the database cannot be queried: %s; "
        "the broker will ask again",
        message.message_id, message.topic, error,
    )  # fmt: skip
    return Outcome.UNKNOWN


def log_other_table(message: ReceivedMessage, *, name: str) -> None:
    """Log that a check is about a marker in another table than the one that its connection
    finds."""
    _log.warning(
        "the outcome of message %s of %r is unknown here: its marker is in the database, or "
        "the schema, that is named %s, and this outbox's checks find the table %s of %s. If each "
        "schema has such a table, and transactions change the schema, give the outbox schema=",
        message.message_id, message.topic, message.system[MARKER].rpartition(":")[0], MARKERS, name,
    )  # fmt: skip


def is_closed() -> UsageError:
    """Make the error for sends with an outbox that is closed, or whose producer is."""
    return UsageError("the outbox is closed, or its producer is; make a new one")


def block_is_over() -> UsageError:
    """Make the error for sends after the end of a block."""
    return UsageError(
        "the transaction has ended, and with it what can be sent in it; send inside the block"
    )
