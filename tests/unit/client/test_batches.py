"""Loops over batches: when one is handed over, what acknowledges it, and what comes again."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from escrowmq.aio import Consumer, Delivery
from escrowmq.base.codes import Request
from escrowmq.errors import UsageError

from .test_consumer import QUICK, Script, a_script, record

BACK = Request.CONSUMER_SEND_MSG_BACK
LOCKED = b'{"lockOKMQSet":[{"topic":"T","brokerName":"b","queueId":0}]}'


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 30))


def offsets(batch: list[Delivery]) -> list[int]:
    return [message.queue_offset for message in batch]


def returned(script: Script) -> list[int]:
    return sorted(int(asked["offset"]) - 1000 for asked in script.asked(BACK))


def test_a_batch_is_full_or_has_waited_long_enough_after_its_first_message() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            script.records = {n: record(n) for n in range(5)}
            async with Consumer(names, group="g", topic="T", **QUICK) as consumer:
                batches = consumer.batches(3, within_s=0.2)
                assert offsets(await anext(batches)) == [0, 1, 2]
                assert offsets(await anext(batches)) == [3, 4]
            assert script.stored_offset == 5

    run(go())


def test_a_batch_is_acknowledged_when_the_next_is_asked_for_and_at_the_end_of_the_block() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            script.records = {n: record(n) for n in range(4)}
            async with Consumer(names, group="g", topic="T", **QUICK) as consumer:
                seen = []
                async for batch in consumer.batches(2, within_s=60):
                    seen.append(offsets(batch))
                    if len(seen) == 2:
                        await script.broker.until(lambda: script.stored_offset == 2)
                        break
            assert seen == [[0, 1], [2, 3]]
            assert script.stored_offset == 4
            assert returned(script) == []

    run(go())


@pytest.mark.parametrize("is_orderly", [False, True])
def test_after_an_error_the_batch_comes_again_but_for_what_was_settled(is_orderly: bool) -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            script.broker.answers[Request.LOCK_BATCH_MQ] = lambda link, command: link.reply(
                command, body=LOCKED
            )
            script.records = {n: record(n) for n in range(3)}
            settings = {**QUICK, "is_orderly": is_orderly}

            async def fail() -> None:
                async with Consumer(names, group="g", topic="T", **settings) as consumer:
                    await script.broker.until(lambda: script.is_asked_at(3))
                    async for batch in consumer.batches(3, within_s=60):
                        assert offsets(batch) == [0, 1, 2]
                        await batch[0].ack()
                        raise KeyError("planted")

            with pytest.raises(KeyError, match="planted"):
                await fail()
            if is_orderly:
                assert returned(script) == []
                assert script.stored_offset == 1, "an orderly queue continues where it stood"
            else:
                assert returned(script) == [1, 2]
                assert script.stored_offset == 3

    run(go())


def test_messages_of_a_batch_may_be_settled_one_by_one() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            script.records = {n: record(n) for n in range(3)}
            async with Consumer(names, group="g", topic="T", **QUICK) as consumer:
                batch = await anext(consumer.batches(3, within_s=60))
                await batch[1].retry()
            assert returned(script) == [1]
            assert script.stored_offset == 3

    run(go())


def test_a_loop_that_is_cancelled_while_it_waits_loses_nothing_that_came() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            script.records = {n: record(n) for n in range(2)}
            async with Consumer(names, group="g", topic="T", **QUICK) as consumer:
                batches = consumer.batches(3, within_s=60)
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await anext(batches)
                assert offsets(await anext(batches)) == [0, 1]
            assert script.stored_offset == 2

    run(go())


def test_what_a_closed_consumer_waited_to_fill_is_handed_to_nobody() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            script.records = {0: record(0)}
            consumer = Consumer(names, group="g", topic="T", **QUICK)

            async def loop() -> list[list[Delivery]]:
                return [batch async for batch in consumer.batches(3, within_s=60)]

            task = asyncio.create_task(loop())
            await script.broker.until(lambda: script.is_asked_at(1))
            await consumer.close()
            assert await task == []
            assert script.stored_offset in (None, 0)

    run(go())


def test_odd_sizes_and_times_are_refused_and_a_handler_takes_every_message() -> None:
    async def go() -> None:
        consumer = Consumer("127.0.0.1:1", group="g", topic="T")
        for settings in ({"count_max": 0}, {"within_s": -1}, {"within_s": 1e9}):
            with pytest.raises(UsageError):
                consumer.batches(**settings)
        handled = Consumer("127.0.0.1:1", group="g", topic="T", handler=lambda message: None)
        with pytest.raises(UsageError, match="has a handler"):
            handled.batches()

    run(go())
