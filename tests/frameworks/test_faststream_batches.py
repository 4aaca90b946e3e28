"""FastStream's broker: batches, and messages that are taken by hand."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from faststream import AckPolicy, FastStream, TestApp

import escrowmq
import escrowmq.aio
from escrowmq import Message
from escrowmq.integrations.faststream import (
    EscrowMQMessage,
)
from escrowmq.testing import Broker
from tests.frameworks.stream import JSON, Order, new_broker, run


def test_a_batch_handler_is_given_what_is_there(escrowmq_broker: Broker) -> None:
    escrowmq_broker.create_topic("paid", queues=1)
    broker = new_broker()
    seen: list[list[str]] = []

    @broker.subscriber("paid", "mailer", batch=True, max_records=4)
    async def mail(orders: list[Order], message: EscrowMQMessage) -> None:
        assert isinstance(message.raw_message, tuple)
        assert [headers["shop"] for headers in message.batch_headers] == ["1"] * len(orders)
        seen.append([order.id for order in orders])

    with escrowmq.Producer(group="web") as producer:
        producer.send_many(
            [
                Message("paid", b'{"id": "%d", "amount": 1}' % nth, properties=JSON | {"shop": "1"})
                for nth in range(6)
            ]
        )

    async def work() -> None:
        await escrowmq_broker.aio.wait_consumed("mailer")

    run(broker, work)
    assert [order for batch in seen for order in batch] == ["0", "1", "2", "3", "4", "5"]
    assert max(map(len, seen)) == 4


@pytest.mark.parametrize(
    ("policy", "raises", "attempts", "dead"),
    [
        (AckPolicy.NACK_ON_ERROR, True, 2, ["a", "b"]),
        (AckPolicy.REJECT_ON_ERROR, True, 1, ["a", "b"]),
        (AckPolicy.ACK, True, 1, ["a"]),
        (AckPolicy.NACK_ON_ERROR, False, 1, ["a"]),
        (AckPolicy.MANUAL, False, 2, ["a", "b"]),
    ],
)
def test_what_is_decided_about_a_batch_counts_for_what_was_not_settled_by_itself(
    escrowmq_broker: Broker, policy: AckPolicy, raises: bool, attempts: int, dead: list[str]
) -> None:
    escrowmq_broker.create_topic("paid", queues=1)
    broker = new_broker()
    counts = {"a": 0, "b": 0}

    @broker.subscriber(
        "paid", "mailer", batch=True, ack_policy=policy, attempts_max=1, retry_after_s=5
    )
    async def mail(bodies: list[str], message: EscrowMQMessage) -> None:
        assert isinstance(message.raw_message, tuple)
        for body, delivery in zip(bodies, message.raw_message, strict=True):
            counts[body] += 1
            if body == "a":
                assert isinstance(delivery, escrowmq.aio.Delivery)
                await delivery.reject()
        if raises:
            raise KeyError("broken")

    with escrowmq.Producer(group="web") as producer:
        producer.send_many([Message("paid", b"a"), Message("paid", b"b")])

    async def work() -> None:
        await escrowmq_broker.aio.wait_consumed("mailer")
        await escrowmq_broker.aio.advance(minutes=1)
        await escrowmq_broker.aio.wait_consumed("mailer")

    run(broker, work)
    assert counts == {"a": 1, "b": attempts}
    assert sorted(body.decode() for body in escrowmq_broker.dead("mailer")) == dead


def test_batches_can_be_taken_one_by_one(escrowmq_broker: Broker) -> None:
    escrowmq_broker.create_topic("paid", queues=1)
    broker = new_broker()
    paid = broker.subscriber("paid", "mailer", batch=True, max_records=2)

    async def work() -> None:
        await broker.producer.send_many(
            [Message("paid", body) for body in (b"a", b"b", b"c", b"d", b"e")]
        )
        first = await paid.get_one()
        assert first is not None
        assert await first.decode() == [b"a", b"b"]
        await first.ack()
        found: list[bytes] = []
        async for message in paid:
            found += await message.decode()
            await message.ack()
            if len(found) == 3:
                break
        assert found == [b"c", b"d", b"e"]
        await escrowmq_broker.aio.wait_consumed("mailer")

    run(broker, work)


@pytest.mark.parametrize("batch", [False, True])
def test_who_takes_messages_is_let_go_when_the_broker_stops(
    escrowmq_broker: Broker, batch: bool
) -> None:
    broker = new_broker()
    paid = broker.subscriber("paid", "mailer", batch=batch)

    async def take() -> list[Any]:
        return [await message.decode() async for message in paid]

    async def go() -> list[Any]:
        async with TestApp(FastStream(broker, logger=None)):
            task = asyncio.create_task(take())
            await broker.publish("x", "paid")
            await escrowmq_broker.aio.wait_consumed("mailer")
        return await task

    assert asyncio.run(go()) == ([["x"]] if batch else ["x"])


@pytest.mark.parametrize("batch", [False, True])
def test_who_still_handles_a_message_when_the_broker_stops_gets_no_error(
    escrowmq_broker: Broker, batch: bool
) -> None:
    """The loop over batches raised ClientClosed; that over single messages ended."""
    broker = new_broker()
    paid = broker.subscriber("paid", "mailer", batch=batch)

    async def go() -> list[Any]:
        taken, stopped = asyncio.Event(), asyncio.Event()

        async def take() -> list[Any]:
            found = []
            async for message in paid:
                found.append(await message.decode())
                taken.set()
                await stopped.wait()
            return found

        async with TestApp(FastStream(broker, logger=None)):
            task = asyncio.create_task(take())
            await broker.publish("x", "paid")
            await taken.wait()
        stopped.set()
        return await task

    assert asyncio.run(go()) == ([["x"]] if batch else ["x"])


@pytest.mark.parametrize("batch", [False, True])
def test_what_is_taken_by_hand_and_nacked_comes_again(escrowmq_broker: Broker, batch: bool) -> None:
    broker = new_broker()
    paid = broker.subscriber("paid", "mailer", batch=batch, retry_after_s=5)
    attempts: list[int] = []

    async def take() -> None:
        async for message in paid:
            raw = message.raw_message
            attempts.append((raw[0] if isinstance(raw, tuple) else raw).deliveries_before)
            if len(attempts) == 1:
                await message.nack()

    async def go() -> None:
        async with TestApp(FastStream(broker, logger=None)):
            task = asyncio.create_task(take())
            await broker.publish("x", "paid")
            await escrowmq_broker.aio.wait_consumed("mailer")
            await escrowmq_broker.aio.advance(seconds=10)
            await escrowmq_broker.aio.wait_consumed("mailer")
        await task

    asyncio.run(go())
    assert attempts == [0, 1]
