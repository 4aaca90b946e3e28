from __future__ import annotations

from escrowmq.errors import ClientClosed
from escrowmq.integrations.outbox.failures import (
    block_ended_error,
    marker_not_written_error,
    outbox_closed_error,
)
from escrowmq.integrations.outbox.steps import StepFailed


def test_an_error_says_what_to_do() -> None:
    assert "create_tables()" in str(marker_not_written_error(KeyError("no such table")))
    assert "create_tables()" in str(marker_not_written_error(StepFailed("locked")))
    closed = marker_not_written_error(ClientClosed("the producer is closed; make a new one"))
    assert "make a new one" in str(closed)
    assert marker_not_written_error(closed) is closed
    error = KeyError("with its values")
    error.orig = ValueError("the driver's own")  # type: ignore[attr-defined]
    assert "anything: the driver's own; if" in str(marker_not_written_error(error)).replace(
        "sent", "anything"
    )
    assert "inside the block" in str(block_ended_error())
    assert "make a new one" in str(outbox_closed_error())
