"""Popped messages in the hands of a slow handler, against a scripted broker."""

from __future__ import annotations

import asyncio

import pytest

from escrowmq.aio import Consumer, Delivery
from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command

from .peer import Link
from .test_consumer import Script, a_script, record
from .test_pop_consumer import NOW_MS, POP, give, run

HIDDEN_MS = 150
QUICK = {**POP, "invisible_ms": HIDDEN_MS}
RENEWED = {"popTime": str(NOW_MS + 70), "invisibleTime": str(HIDDEN_MS), "reviveQid": "3"}
NEW_RECEIPT = f"0 {NOW_MS + 70} {HIDDEN_MS} 3 0 b 0 0"
OLD_RECEIPT = f"0 {NOW_MS} {HIDDEN_MS} 0 0 b 0 0"


def renews(script: Script) -> list[dict[str, str]]:
    return script.asked(Request.CHANGE_MESSAGE_INVISIBLETIME)


def grant(link: Link, command: Command) -> None:
    link.reply(command, ext=RENEWED)


def answer(script: Script, reply: object = grant) -> None:
    give(script, record(0), hidden_ms=HIDDEN_MS)
    script.broker.answers[Request.CHANGE_MESSAGE_INVISIBLETIME] = reply  # type: ignore[assignment]


def test_a_message_stays_hidden_while_its_handler_runs() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            answer(script)

            async def handle(message: Delivery) -> None:
                await script.broker.until(lambda: len(renews(script)) == 2)

            async with Consumer(names, group="g", topic="T", handler=handle, **QUICK):
                await script.broker.until(lambda: script.asked(Request.ACK_MESSAGE))
            first, second = renews(script)
            assert (first["extraInfo"], first["invisibleTime"]) == (OLD_RECEIPT, str(HIDDEN_MS))
            assert second["extraInfo"] == NEW_RECEIPT
            (ack,) = script.asked(Request.ACK_MESSAGE)
            assert ack["extraInfo"] == NEW_RECEIPT

    run(go)


def test_a_message_is_settled_by_the_receipt_of_a_renewal_under_way() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            asked: list[tuple[Link, Command]] = []
            answer(script, lambda link, command: asked.append((link, command)))

            async def handle(message: Delivery) -> None:
                await script.broker.until(lambda: asked)
                acking = asyncio.ensure_future(message.ack())
                await asyncio.sleep(0)
                grant(*asked[0])
                await acking

            async with Consumer(names, group="g", topic="T", handler=handle, **QUICK):
                await script.broker.until(lambda: script.asked(Request.ACK_MESSAGE))
            assert script.asked(Request.ACK_MESSAGE)[0]["extraInfo"] == NEW_RECEIPT

    run(go)


def test_a_broker_that_renews_nothing_is_told_of_and_the_handler_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(link: Link, command: Command) -> None:
        link.reply(command, Response.SYSTEM_ERROR, remark="planted")

    async def go() -> None:
        async with a_script() as (names, script):
            answer(script, refuse)

            async def handle(message: Delivery) -> None:
                await script.broker.until(lambda: renews(script))

            async with Consumer(names, group="g", topic="T", handler=handle, **QUICK):
                await script.broker.until(lambda: script.asked(Request.ACK_MESSAGE))
            assert script.asked(Request.ACK_MESSAGE)[0]["extraInfo"] == OLD_RECEIPT

    run(go)
    assert "cannot be kept hidden from others now" in caplog.text
    assert "planted" in caplog.text


def test_a_message_stays_hidden_while_a_loop_s_body_runs() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            answer(script)
            async with Consumer(names, group="g", topic="T", **QUICK) as consumer:
                async for _ in consumer:
                    await script.broker.until(lambda: renews(script))
                    break
            assert script.asked(Request.ACK_MESSAGE)[0]["extraInfo"] == NEW_RECEIPT

    run(go)


def test_a_loop_that_ended_keeps_nothing_hidden() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            answer(script)
            async with Consumer(names, group="g", topic="T", **QUICK) as consumer:
                async for _ in consumer:
                    break
                assert await consumer.receive(1, timeout_s=1.5 * HIDDEN_MS / 1_000) == []
                assert not renews(script)

    run(go)


def test_what_takes_longer_than_a_handler_may_is_left_to_others() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            answer(script)
            short = {**QUICK, "consume_timeout_ms": 1}
            async with Consumer(names, group="g", topic="T", **short) as consumer:
                async for _ in consumer:
                    assert await consumer.receive(1, timeout_s=1.5 * HIDDEN_MS / 1_000) == []
                    break
            assert not renews(script)

    run(go)


def test_a_message_that_is_settled_too_late_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            give(script, record(0), hidden_ms=HIDDEN_MS)
            async with Consumer(names, group="g", topic="T", **QUICK) as consumer:
                (message,) = await consumer.receive(1)
                assert message.delivery_state is not None
                message.delivery_state.due_s = consumer.instance.now() - 2  # as if that much later
                await message.ack()

    run(go)
    assert "was settled 2.0 s after its invisible time" in caplog.text
