from __future__ import annotations

from escrowmq.errors import ClientClosed
from escrowmq.integrations.outbox.failures import (
    block_is_over,
    is_closed,
    not_written,
)
from escrowmq.integrations.outbox.steps import StepFailed


def test_an_error_says_what_to_do() -> None:
    assert "create_tables()" in str(not_written(KeyError("no such table")))
    assert "create_tables()" in str(not_written(StepFailed("locked")))
    closed = not_written(ClientClosed("the producer is closed; make a new one"))
    assert "make a new one" in str(closed)
    assert not_written(closed) is closed
    error = KeyError("with its values")
    error.orig = ValueError("the driver's own")  # type: ignore[attr-defined]
    assert "anything: the driver's own; if" in str(not_written(error)).replace("sent", "anything")
    assert "inside the block" in str(block_is_over())
    assert "make a new one" in str(is_closed())
