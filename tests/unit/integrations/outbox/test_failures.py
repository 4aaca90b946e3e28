from __future__ import annotations

import logging

import pytest

from escrowmq.client.core.message import ReceivedMessage
from escrowmq.client.core.sending import Outcome
from escrowmq.errors import ClientClosed
from escrowmq.integrations.outbox.failures import (
    block_is_over,
    is_closed,
    log_other_table,
    not_known,
    not_written,
)
from escrowmq.integrations.outbox.steps import StepFailed


def test_an_error_says_what_to_do() -> None:
    assert "create_tables()" in str(not_written(KeyError("no such table")))
    assert "create_tables()" in str(not_written(StepFailed("locked")))
    closed = not_written(ClientClosed("the producer is closed; make a new one"))
    assert "make a new one" in str(closed)
    assert not_written(closed) is closed
    assert "inside the block" in str(block_is_over())


def test_a_check_that_cannot_ask_says_so_and_leaves_it_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        found = not_known(ReceivedMessage("T", b"", message_id="m-1"), StepFailed("away"))
    assert found is Outcome.UNKNOWN
    assert "m-1" in caplog.text
    assert "away" in caplog.text


def test_a_marker_of_another_table_is_named(caplog: pytest.LogCaptureFixture) -> None:
    asked = ReceivedMessage("T", b"", message_id="m-1", system={"escrowMarker": "theirs:0A"})
    with caplog.at_level(logging.WARNING):
        log_other_table(asked, name="ours")
    assert "named theirs" in caplog.text
    assert "of ours" in caplog.text
    assert "make a new one" in str(is_closed())
