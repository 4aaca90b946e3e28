"""Failed messages that come again from memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from escrowmq.aio import Consumer, Delivery
from escrowmq.base.codes import Request, Response
from escrowmq.client import consumer_state, instance
from escrowmq.codec.properties import parse_properties
from escrowmq.errors import UsageError

from .test_consumer import QUEUE, QUICK, a_script, record

TASKS_MAX = 40
COUNT = 3 * TASKS_MAX


@pytest.fixture
def few_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance, "TASKS_MAX", TASKS_MAX)


@pytest.mark.usefixtures("few_tasks")
def test_more_messages_may_fail_than_a_client_has_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each had a task, and beyond 10,000 of them `retry()` raised. Those messages never came again,
    and the offset of their queue stood still."""
    monkeypatch.setattr(consumer_state, "_KEEP_HERE_S", 0.01)

    async def go() -> None:
        async with a_script() as (names, script):
            script.records = {n: record(n) for n in range(COUNT)}
            async with Consumer(names, group="g", queues=[QUEUE], **QUICK) as consumer:
                failed: list[Delivery] = []
                while len(failed) < COUNT:
                    failed += await consumer.receive(COUNT)
                for message in failed:
                    await message.retry()
                again: list[Delivery] = []
                while len(again) < COUNT:
                    again += await consumer.receive(COUNT)
                assert {each.deliveries_before for each in again} == {1}
                assert {each.queue_offset for each in again} == {*range(COUNT)}

    asyncio.run(go())


@pytest.mark.usefixtures("few_tasks")
def test_a_decision_that_was_refused_for_too_many_tasks_can_be_made_again() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            script.records = {n: record(n) for n in range(COUNT)}
            async with Consumer(names, group="g", topic="T", **QUICK) as consumer:
                failed: list[Delivery] = []
                while len(failed) < COUNT:
                    failed += await consumer.receive(COUNT)
                decisions = [message.retry() for message in failed]
                results = await asyncio.gather(*decisions, return_exceptions=True)
                refused = [m for m, error in zip(failed, results, strict=True) if error is not None]
                assert refused
                assert {type(error) for error in results if error is not None} == {UsageError}
                for message in refused:
                    await message.retry()
                await script.broker.until(lambda: script.stored_offset == COUNT)

    asyncio.run(go())


def test_nothing_waits_for_its_time_behind_the_end_of_a_consumer() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            script.records = {n: record(n) for n in range(2)}
            settings: dict[str, Any] = {**QUICK, "queues": [QUEUE]}
            async with Consumer(names, group="g", **settings) as consumer:
                (first,) = await consumer.receive(1)
                (second,) = await consumer.receive(1)
                await first.retry(after=7_200)
                redeliveries = consumer._state._redeliveries
                assert len(redeliveries._timers) == 1
                consumer._state.stop()
                await second.retry(after=7_200)
                assert not redeliveries._timers
            assert script.stored_offset == 0

    asyncio.run(go())


def test_a_request_that_is_sent_anew_can_still_be_replied_to() -> None:
    """The properties by which it asks for a reply were left out: the next attempt raised."""
    asks = {"CORRELATION_ID": "c", "REPLY_TO_CLIENT": "me", "TTL": "3000", "CLUSTER": "one"}

    async def go() -> None:
        async with a_script() as (names, script):
            script.records = {0: record(0, UNIQ_KEY="u", **asks)}
            script.broker.answers[Request.CONSUMER_SEND_MSG_BACK] = lambda link, command: (
                link.reply(command, Response.SYSTEM_ERROR, remark="no")
            )
            async with Consumer(names, group="g", topic="T", **QUICK) as consumer:
                (message,) = await consumer.receive(1)
                await message.retry()
            (sent,) = script.asked(Request.SEND_MESSAGE_V2)
            properties = parse_properties(sent["i"])
            assert {name: properties.get(name) for name in asks} == asks

    asyncio.run(go())
