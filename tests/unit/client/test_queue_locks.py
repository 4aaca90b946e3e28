"""Locks of queues."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from escrowmq.base.command import Command
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.queue_locks import QueueLocks

A, B = (MessageQueue("T", name, 0) for name in "ab")


@pytest.mark.parametrize("odd", [b"", b"[]", b'{"lockOKMQSet":[{}]}', b"\xff"])
def test_an_answer_that_is_none_is_that_of_its_broker_alone(
    odd: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """It ended the renewal with a traceback, for the queues of all other brokers too."""
    good = b'{"lockOKMQSet":[{"topic":"T","brokerName":"b","queueId":0}]}'

    async def ask(address: str, code: int, fields: object, body: bytes) -> Command:
        return Command(code=0, body={"a": odd, "b": good}[address])

    instance: Any = SimpleNamespace(ask=ask, address_of=lambda name: name, client_id="me")
    assert asyncio.run(QueueLocks(instance, "g").lock([A, B])) == {B}
    assert "1 queues of a cannot be locked" in caplog.text
