"""An orderly queue goes on when its batch is settled and its handler has ended; each attempt of a
message is a delivery of its own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import pytest

from escrowmq.aio import Consumer, Delivery
from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.client import consumer_state
from escrowmq.client.core import redelivery

from .peer import Link
from .test_consumer import QUEUE, QUICK, Script, a_script, record

ORDERLY: dict[str, Any] = {**QUICK, "is_orderly": True, "suspend_ms": 10}
TURNS: Final = 50
"""Turns of the loop in which a message would be handed out that nothing keeps back."""


def lock_all(link: Link, command: Command) -> None:
    link.reply(
        command, body=json.dumps({"lockOKMQSet": json.loads(command.body)["mqSet"]}).encode()
    )


async def pass_turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


class Attempts:
    """A handler: retries the first message, fails at it, then succeeds."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []
        self.running_count = self.running_most = 0

    async def handle(self, message: Delivery) -> None:
        self.running_count += 1
        self.running_most = max(self.running_most, self.running_count)
        self.seen.append((message.queue_offset, message.deliveries_before))
        try:
            if (message.queue_offset, message.deliveries_before) == (0, 0):
                await message.retry()
                await pass_turns()
            elif (message.queue_offset, message.deliveries_before) == (0, 1):
                raise KeyError("planted")
        finally:
            self.running_count -= 1


EXPECTED: Final = {True: [(0, 0), (0, 1), (0, 2), (1, 0)], False: [(0, 0), (1, 0), (0, 1), (0, 2)]}
"""What is handled: an orderly queue waits for a message, another one does not."""


@pytest.mark.parametrize("is_orderly", [True, False])
def test_a_message_that_its_handler_retries_is_done_when_an_attempt_succeeds(
    monkeypatch: pytest.MonkeyPatch, *, is_orderly: bool
) -> None:
    """The end of the handler that had retried it acknowledged the next attempt: if that failed, or
    the process died, the message was lost."""
    monkeypatch.setattr(consumer_state, "_KEEP_HERE_S", 0.05)

    async def go() -> None:
        async with a_script() as (names, script):
            script.broker.answers[Request.LOCK_BATCH_MQ] = lock_all
            script.records = {0: record(0), 1: record(1)}
            attempts = Attempts()
            more: dict[str, Any] = ORDERLY if is_orderly else {**QUICK, "queues": [QUEUE]}
            consumer = Consumer(
                names, group="g", topic="T", handler=attempts.handle, concurrency=2, **more
            )
            async with consumer:
                while len(attempts.seen) < 4 or attempts.running_count:
                    await asyncio.sleep(0.01)
                while await consumer.position(QUEUE) != 2:
                    await asyncio.sleep(0.01)
            assert attempts.seen == EXPECTED[is_orderly]
            assert attempts.running_most == 1 or not is_orderly

    asyncio.run(go())


def test_the_next_message_of_a_queue_waits_for_a_handler_that_has_acknowledged_early() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            script.broker.answers[Request.LOCK_BATCH_MQ] = lock_all
            script.records = {0: record(0), 1: record(1)}
            seen: list[str] = []
            second = asyncio.Event()

            async def handle(message: Delivery) -> None:
                seen.append(f"begins {message.queue_offset}")
                await message.ack()
                await script.broker.until(lambda: script.is_asked_at(2))
                await pass_turns()
                seen.append(f"ends {message.queue_offset}")
                if message.queue_offset == 1:
                    second.set()

            settings = {**ORDERLY, "concurrency": 2}
            async with Consumer(names, group="g", topic="T", handler=handle, **settings):
                await second.wait()
            assert seen == ["begins 0", "ends 0", "begins 1", "ends 1"]

    asyncio.run(go())


def test_an_orderly_queue_goes_on_after_a_loop_that_was_left_with_all_acknowledged() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            script.broker.answers[Request.LOCK_BATCH_MQ] = lock_all
            script.records = {0: record(0), 1: record(1)}
            async with Consumer(names, group="g", topic="T", **ORDERLY) as consumer:
                async for message in consumer:
                    await message.ack()
                    break
                (following,) = await consumer.receive(1)
                assert following.queue_offset == 1

    asyncio.run(go())


def test_a_requested_pause_replaces_the_suspension(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redelivery, "DELAY_LEVELS_S", (0.01,) * 18)

    async def go() -> None:
        async with a_script() as (names, script):
            script.broker.answers[Request.LOCK_BATCH_MQ] = lock_all
            script.records = {0: record(0)}
            settings = {**ORDERLY, "suspend_ms": 30_000}
            async with Consumer(names, group="g", topic="T", **settings) as consumer:
                (message,) = await consumer.receive(1)
                await message.retry(after=0.01)
                (again,) = await consumer.receive(1)
                assert again.deliveries_before == 1

    asyncio.run(go())


def test_the_last_attempt_at_a_chosen_queue_goes_to_the_dead_letters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was retried here for ever, and held the offset."""
    monkeypatch.setattr(consumer_state, "_KEEP_HERE_S", 0.01)

    async def go() -> None:
        async with a_script() as (names, script):
            script.records = {0: record(0)}
            script.broker.answers[Request.CONSUMER_SEND_MSG_BACK] = lambda link, command: (
                link.reply(command, Response.SUCCESS)
            )
            attempts: list[int] = []

            async def handle(message: Delivery) -> None:
                attempts.append(message.deliveries_before)
                raise KeyError("planted")

            settings: dict[str, Any] = {**QUICK, "queues": [QUEUE], "attempts_max": 2}
            async with Consumer(names, group="g", topic="T", handler=handle, **settings):
                await script.broker.until(lambda: script.asked(Request.CONSUMER_SEND_MSG_BACK))
            assert attempts == [0, 1, 2]
            (back,) = script.asked(Request.CONSUMER_SEND_MSG_BACK)
            assert back["delayLevel"] == "-1"

    asyncio.run(go())


def test_a_message_that_fails_as_its_queue_is_revoked_holds_the_offset() -> None:
    """It counted as done, because it would be redelivered; and the offset stored one turn later
    went past it."""

    async def go() -> None:
        async with a_script() as (names, script):
            script.records = {0: record(0), 1: record(1)}
            async with Consumer(names, group="g", topic="T", **QUICK) as consumer:
                first, second = await receive_two(consumer)
                reading = consumer._state
                dropping = asyncio.create_task(reading._drop_queues([QUEUE]))
                await second.ack()
                await asyncio.sleep(0)
                await first.retry()
                await dropping
            assert stored(script) == 0

    asyncio.run(go())


async def receive_two(consumer: Consumer) -> list[Delivery]:
    found: list[Delivery] = []
    while len(found) < 2:
        found += await consumer.receive(2)
    return found


def stored(script: Script) -> int:
    return script.stored_offset or 0


def test_every_broadcasting_member_reads_every_queue_in_order(tmp_path: Path) -> None:
    """They locked the queues, so that one member got all messages, and the others none; and each
    made dead letters of what it could not handle."""
    seen: list[tuple[int, int]] = []

    async def handle(message: Delivery) -> None:
        seen.append((message.queue_offset, message.deliveries_before))
        if message.queue_offset == 0:
            raise KeyError("planted")

    async def go() -> None:
        async with a_script() as (names, script):
            script.broker.answers[Request.LOCK_BATCH_MQ] = lambda link, command: link.reply(
                command, body=b'{"lockOKMQSet":[]}'
            )
            script.records = {0: record(0), 1: record(1)}
            settings: dict[str, Any] = {
                **ORDERLY, "is_broadcasting": True, "offsets_folder": str(tmp_path),
                "attempts_max": 2, "handler": handle,
            }  # fmt: skip
            async with Consumer(names, group="g", topic="T", **settings):
                while len(seen) < 4:
                    await asyncio.sleep(0)
            for code in (Request.LOCK_BATCH_MQ, Request.UNLOCK_BATCH_MQ,
                         Request.CONSUMER_SEND_MSG_BACK):  # fmt: skip
                assert script.asked(code) == []

    asyncio.run(go())
    assert seen == [(0, 0), (0, 1), (0, 2), (1, 0)]
