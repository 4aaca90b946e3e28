"""Sends whose brokers or name servers are away for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from escrowmq.aio import Message, Outcome, Producer
from escrowmq.base.codes import Request
from escrowmq.errors import SendFailed

from .peer import Peer, a_place, stored

SEND = Request.SEND_MESSAGE_V2


def run(test: Any) -> None:
    asyncio.run(test())


async def gone(broker: Peer) -> int:
    """Let a broker refuse connections; its port."""
    port = int(broker.address.rpartition(":")[2])
    broker.close()
    await broker.until(lambda: not broker.links)
    return port


def test_sends_wait_for_the_only_broker_as_long_as_they_have_time() -> None:
    async def go() -> None:
        async with (
            a_place("T", signed_id="id-1") as (names, broker),
            Producer(names.address, group="PG", timeout_ms=20_000) as producer,
        ):
            first = await producer.send("T", b"x")
            port = await gone(broker)
            with pytest.raises(SendFailed):
                await producer.send("T", b"x", timeout_ms=100)
            begun = producer.transaction("T", b"x")
            works: list[Coroutine[Any, Any, object]] = [
                producer.send("T", b"x"),
                producer.send("T", b"x", order_key="k"),
                producer.send("T", b"x", queue=first.queue),
                producer.send_many([Message("T", b"x")]),
                begun.begin(),
            ]
            sends = [asyncio.create_task(each) for each in works]
            _, waiting = await asyncio.wait(sends, timeout=0.3)
            assert len(waiting) == len(sends)
            await broker.open(port)
            await asyncio.wait_for(asyncio.gather(*sends), 10)
            await begun.settle(Outcome.ROLLBACK)

    run(go)


def test_a_broker_that_stays_away_fails_a_send_when_its_time_is_over_and_not_before() -> None:
    async def go() -> None:
        async with (
            a_place("T") as (names, broker),
            Producer(names.address, group="PG") as producer,
        ):
            await producer.send("T", b"x")
            await gone(broker)
            started = asyncio.get_running_loop().time()
            with pytest.raises(SendFailed) as failed:
                await producer.send("T", b"x", timeout_ms=300)
            assert asyncio.get_running_loop().time() - started > 0.1
            assert [name for name, _ in failed.value.attempts].count("b") <= 2

    run(go)


def test_a_broker_that_goes_away_is_waited_for_too() -> None:
    async def go() -> None:
        async with (
            a_place("T") as (names, broker),
            Producer(names.address, group="PG") as producer,
        ):
            answers: list[Any] = [
                *[lambda link, command: link.reply(command, 1500, remark="bye")] * 5,
                stored,
            ]
            broker.answers[SEND] = lambda link, command: answers.pop(0)(link, command)  # noqa: PLW0108
            assert (await producer.send("T", b"x")).offset == 5

    run(go)


def test_name_servers_that_answered_before_are_waited_for() -> None:
    async def go() -> None:
        async with (
            a_place("T", "U") as (names, _),
            Producer(names.address, group="PG", timeout_ms=20_000) as producer,
        ):
            await producer.send("T", b"x")
            port = await gone(names)
            send = asyncio.create_task(producer.send("U", b"x"))
            _, waiting = await asyncio.wait([send], timeout=0.3)
            assert waiting
            await names.open(port)
            await asyncio.wait_for(send, 10)

    run(go)


@pytest.mark.thorough
def test_thousands_of_sends_that_fail_together_look_for_the_route_once() -> None:
    async def go() -> None:
        async with (
            a_place("T") as (names, broker),
            Producer(names.address, group="PG", timeout_ms=20_000) as producer,
        ):
            await producer.send("T", b"x")
            broker.answers[SEND] = lambda link, command: None
            many = [asyncio.create_task(producer.send("T", b"x")) for _ in range(10_000)]
            await broker.until(lambda: len(broker.requests) > 10_000)
            broker.answers[SEND] = stored
            broker.links[0].transport.abort()
            await asyncio.gather(*many)
            assert names.codes().count(Request.GET_ROUTEINFO_BY_TOPIC) < 10

    run(go)
