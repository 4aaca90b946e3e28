"""How queues change hands."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from escrowmq.aio import Consumer
from escrowmq.base.codes import Request

from .test_consumer import QUEUE, QUICK, a_script, record


def test_a_queue_whose_giving_up_failed_can_be_read_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It counted as one that is being left for good, and this member never began it anew."""

    async def go() -> None:
        async with a_script() as (names, script):
            script.broker.answers[Request.LOCK_BATCH_MQ] = lambda link, command: link.reply(
                command, body=b'{"lockOKMQSet":[{"topic":"T","brokerName":"b","queueId":0}]}'
            )
            script.records = {0: record(0)}
            settings: dict[str, Any] = {**QUICK, "is_orderly": True}
            async with Consumer(names, group="g", topic="T", **settings) as consumer:
                (message,) = await consumer.receive(1)
                reading = consumer._reading
                keep = reading.offsets.keep
                failed = asyncio.Event()

                async def fail(readers: Any) -> None:
                    for reader in readers:
                        if reader.is_dropped:
                            reading.offsets.keep = keep  # type: ignore[method-assign]
                            failed.set()
                            raise RuntimeError("planted")

                await reading._drop_queues([QUEUE])
                reading.offsets.keep = fail  # type: ignore[method-assign]
                await message.ack()
                await failed.wait()
                await asyncio.sleep(0)
                assert QUEUE not in reading._leaving
                (again,) = await consumer.receive(1)
                assert again.queue_offset == 0

    asyncio.run(go())
    assert "planted" in caplog.text
