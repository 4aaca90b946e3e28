"""Deliveries for unit tests of handlers: what is decided about them is what a consumer would do."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

import escrowmq
import escrowmq.aio
from escrowmq.errors import InvalidMessage, UsageError
from escrowmq.integrations.sqlalchemy import add_tables, consume_once
from escrowmq.testing import AioMadeDelivery, MadeDelivery, aio_delivery, delivery

MINUTE = dt.timedelta(minutes=1)


def test_a_delivery_is_one_of_the_plain_face_and_has_what_it_was_given() -> None:
    message = delivery(
        "paid", b"1", group="mailer", tag="card", keys=["o-1"], properties={"shop": "3"},
        order_key="c-7", deliveries_before=2, message_id="ID",
    )  # fmt: skip
    assert isinstance(message, escrowmq.Delivery)
    assert (message.topic, message.body, message.tag, message.keys) == (
        "paid",
        b"1",
        "card",
        ["o-1"],
    )
    assert (message.properties, message.order_key) == ({"shop": "3"}, "c-7")
    assert (message.group, message.deliveries_before, message.message_id) == ("mailer", 2, "ID")
    assert message.queue.topic == "paid"
    assert not message.is_broadcast


def test_each_has_an_id_of_its_own() -> None:
    assert len({delivery("paid", b"1").message_id for _ in range(5)}) == 5


def test_it_remembers_what_was_decided() -> None:
    message = delivery("paid", b"1")
    assert message.decision is None
    message.ack()
    message.ack()
    assert message.decision == "ack"
    message = delivery("paid", b"1")
    message.retry(after=MINUTE)
    message.retry(after=1)  # the first counts, as at a consumer
    assert (message.decision, message.retry_after) == ("retry", MINUTE)
    message = delivery("paid", b"1")
    message.reject()
    assert (message.decision, message.retry_after) == ("reject", None)


def test_a_second_decision_is_refused_as_at_a_consumer() -> None:
    message = delivery("paid", b"1")
    message.ack()
    with pytest.raises(UsageError, match="decide once"):
        message.retry()
    assert message.decision == "ack"
    with pytest.raises(UsageError, match="after=-1"):
        delivery("paid", b"1").retry(after=-1)


def test_the_awaited_one_does_the_same() -> None:
    async def go() -> list[AioMadeDelivery]:
        messages = [aio_delivery("paid", b"1", keys="o-1") for _ in range(4)]
        await messages[0].ack()
        await messages[1].retry(after=60)
        await messages[2].reject()
        return messages

    messages = asyncio.run(go())
    assert [message.decision for message in messages] == ["ack", "retry", "reject", None]
    assert messages[1].retry_after == 60
    assert all(isinstance(message, escrowmq.aio.Delivery) for message in messages)
    assert messages[0].keys == ["o-1"]


@pytest.mark.parametrize("make", [delivery, aio_delivery])
def test_what_no_broker_takes_is_refused(make: type[MadeDelivery]) -> None:
    with pytest.raises(InvalidMessage, match="bytes"):
        make("paid", "text")  # type: ignore[arg-type]
    with pytest.raises(InvalidMessage):
        make("not a topic", b"1")


def test_an_acknowledgement_inside_consume_once_waits_for_the_commit() -> None:
    async def go() -> None:
        engine = create_async_engine("sqlite+aiosqlite://")
        metadata = sa.MetaData()
        add_tables(metadata)
        async with engine.begin() as connection:
            await connection.run_sync(metadata.create_all)
        decisions: list[str | None] = []

        @consume_once(async_sessionmaker(engine))
        async def handle(message: AioMadeDelivery, session: AsyncSession) -> None:
            await message.ack()
            decisions.append(message.decision)
            if message.keys == ["fails"]:
                raise KeyError

        message = aio_delivery("paid", b"1")
        await handle(message)
        assert (decisions, message.decision) == ([None], "ack")
        message = aio_delivery("paid", b"1", keys=["fails"])
        with pytest.raises(KeyError):
            await handle(message)
        assert message.decision is None
        await engine.dispose()

    asyncio.run(go())
