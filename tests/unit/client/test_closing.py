from __future__ import annotations

import asyncio
from typing import Any

import pytest

from escrowmq.aio import Consumer, Producer
from escrowmq.base.codes import Request
from escrowmq.errors import ClientClosed
from escrowmq.net import dialling

from .peer import a_place
from .test_consumer import QUICK, a_script, record

SEND = Request.SEND_MESSAGE_V2
ROUTE = Request.GET_ROUTEINFO_BY_TOPIC


def run(test: Any) -> None:
    asyncio.run(test())


@pytest.mark.parametrize("waits_for", ["route", "connection", "answer", "reply"])
def test_a_call_that_a_close_overtakes_is_told_so_and_not_cancelled(
    waits_for: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> None:
        dialled = asyncio.Event()

        async def dial(*_: Any, **__: Any) -> Any:
            dialled.set()
            return await asyncio.get_running_loop().create_future()

        async with a_place("T") as (names, broker):
            producer = await Producer(names.address, group="PG").open()
            if waits_for == "route":
                names.answers[ROUTE] = lambda link, command: None
            elif waits_for == "connection":
                await producer.instance.route("T")
                monkeypatch.setattr(dialling, "dial", dial)
            elif waits_for == "answer":
                broker.answers[SEND] = lambda link, command: None
            call = producer.request if waits_for == "reply" else producer.send
            sending = asyncio.create_task(call("T", b"x", timeout_ms=20_000))
            if waits_for == "route":
                await names.until(lambda: ROUTE in names.codes())
            elif waits_for == "connection":
                await dialled.wait()
            else:
                await broker.until(lambda: SEND in broker.codes())
            await producer.close()
            with pytest.raises(ClientClosed):
                await sending

    run(go)


@pytest.mark.parametrize("is_another_task", [True, False])
def test_a_loop_ends_if_its_consumer_is_closed_while_its_body_runs(
    *, is_another_task: bool
) -> None:
    """It raised ClientClosed, because the message could not be acknowledged any more."""

    async def go() -> None:
        async with a_script() as (names, script):
            script.records = {n: record(n) for n in range(9)}
            consumer = await Consumer(names, group="g", topic="T", **QUICK).open()
            seen = []
            async for message in consumer:
                seen.append(message.queue_offset)
                closing = consumer.close()
                await (asyncio.create_task(closing) if is_another_task else closing)
            assert seen == [0]
            (back,) = script.asked(Request.CONSUMER_SEND_MSG_BACK)
            assert back["offset"] == "1000"

    run(go)
