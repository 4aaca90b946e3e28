from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from escrowmq.aio import Consumer, Producer
from escrowmq.base.codes import Request
from escrowmq.client import consumer as consumer_module
from escrowmq.errors import ClientClosed
from escrowmq.net import dialling

from .peer import DEADLINE_S, a_place
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


@pytest.mark.parametrize("kind", ["ordered", "bundled", "queue"])
def test_a_message_that_is_tried_once_is_told_of_a_close_too(kind: str) -> None:
    """It was told that its connection was gone (SendFailed), as if a broker were to blame."""

    async def go() -> None:
        async with a_place("T") as (names, broker):
            producer = await Producer(names.address, group="PG").open()
            queue = (await producer.send("T", b"x")).queue
            broker.answers[SEND] = lambda link, command: None
            broker.requests.clear()
            if kind == "bundled":
                tx = await producer.transaction().begin()
                sending: Any = tx.send("T", b"x")
            elif kind == "ordered":
                sending = producer.send("T", b"x", order_key="k")
            else:
                sending = producer.send("T", b"x", queue=queue)
            task = asyncio.create_task(sending)
            await broker.until(lambda: SEND in broker.codes())
            await producer.close()
            with pytest.raises(ClientClosed, match="may be stored"):
                await task

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


@pytest.mark.parametrize("is_slow", [False, True])
def test_a_consumer_that_closes_leaves_no_thread_of_its_callbacks(
    *, is_slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If brokers were silent, its end was given up before `on_revoked` was called. The thread that
    calls it waited for ever, one for each consumer of a service that made them anew."""
    monkeypatch.setattr(consumer_module, "_END_S", 0.05)
    told: list[str] = []
    may_return = threading.Event()

    def revoked(_: object) -> None:
        told.append("revoked")
        if is_slow:
            may_return.wait(DEADLINE_S)

    async def go() -> list[threading.Thread]:
        async with a_script() as (names, script):
            before = {*threading.enumerate()}
            settings: dict[str, Any] = {
                **QUICK, "on_assigned": lambda _: told.append("assigned"), "on_revoked": revoked,
                "request_timeout_ms": 100,
            }  # fmt: skip
            async with Consumer(names, group="g", topic="T", **settings):
                await script.broker.until(lambda: script.is_asked_at(0))
                while not told:
                    await asyncio.sleep(0)
                for code in (Request.UPDATE_CONSUMER_OFFSET, Request.UNREGISTER_CLIENT):
                    script.broker.answers[code] = lambda link, command: None
            return [one for one in threading.enumerate() if one not in before]

    left = asyncio.run(go())
    may_return.set()
    for thread in left:
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    assert told == ["assigned", "revoked"]
