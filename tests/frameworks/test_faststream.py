"""FastStream's broker: with its own test broker, and with a real broker behind it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from faststream import AckPolicy, BaseMiddleware
from faststream.exceptions import NackMessage, RejectMessage, SetupError, SubscriberNotFound
from faststream.specification import AsyncAPI
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from escrowmq.client.core.hooks import Consumed, Interceptor
from escrowmq.client.core.message import Message, ReceivedMessage
from escrowmq.errors import InvalidMessage, ReplyTimeout, UsageError
from escrowmq.integrations.faststream import (
    EscrowMQBroker,
    EscrowMQMessage,
    EscrowMQResponse,
    EscrowMQRouter,
    TestEscrowMQBroker,
)
from escrowmq.integrations.sqlalchemy import AsyncOutbox
from escrowmq.testing import Broker
from tests.frameworks.stream import Mail, Order, new_broker, run

# -- its own test broker ---------------------------------------------------------------------


def test_handlers_run_without_a_broker_and_remember_what_they_were_given() -> None:
    broker = new_broker()

    @broker.subscriber("paid", "mailer")
    @broker.publisher("mailed")
    async def mail(order: Order) -> Mail:
        return Mail(order=order.id)

    @broker.subscriber("mailed", "archive")
    async def archive(mail: Mail) -> None:
        pass

    async def go() -> None:
        async with TestEscrowMQBroker(broker) as tested:
            await tested.publish(Order(id="o-1", amount=7), "paid")
            mail.mock.assert_called_once_with({"id": "o-1", "amount": 7})
            archive.mock.assert_called_once_with({"order": "o-1"})

    asyncio.run(go())


def test_a_publisher_that_nobody_reads_remembers_what_it_published() -> None:
    broker = new_broker()
    publisher = broker.publisher("mailed", tag="card")

    @broker.subscriber("paid", "mailer")
    @publisher
    async def mail(body: str) -> str:
        return f"{body}!"

    async def go() -> None:
        async with TestEscrowMQBroker(broker) as tested:
            await tested.publish("hello", "paid")
            publisher.mock.assert_called_once_with("hello!")

    asyncio.run(go())


def test_tags_choose_the_handler_in_tests_too() -> None:
    broker = new_broker()

    @broker.subscriber("paid", "cards", tags="card || cash")
    async def wanted(body: str) -> None: ...

    @broker.subscriber("paid", "others", tags="invoice")
    async def unwanted(body: str) -> None: ...

    async def go() -> None:
        async with TestEscrowMQBroker(broker) as tested:
            await tested.publish("hello", "paid", tag="card")
            wanted.mock.assert_called_once_with("hello")
            unwanted.mock.assert_not_called()

    asyncio.run(go())


def test_what_a_handler_raises_leaves_publish_in_tests() -> None:
    broker = new_broker()

    @broker.subscriber("paid", "mailer")
    async def mail(body: str) -> None:
        raise KeyError(body)

    async def go() -> None:
        async with TestEscrowMQBroker(broker) as tested:
            with pytest.raises(KeyError, match="hello"):
                await tested.publish("hello", "paid")

    asyncio.run(go())


def test_a_request_is_answered_in_tests() -> None:
    broker = new_broker()

    @broker.subscriber("sums", "adders")
    async def add(numbers: list[int]) -> int:
        return sum(numbers)

    async def go() -> None:
        async with TestEscrowMQBroker(broker) as tested:
            answer = await tested.request([1, 2, 3], "sums")
            assert await answer.decode() == 6

    asyncio.run(go())


@pytest.mark.parametrize(
    ("message", "topic", "more"),
    [
        ("", "sums", {}),
        ("x", "a b", {}),
        ("x", "sums", {"headers": {"KEYS": "x"}}),
        ("x", "sums", {"keys": ["a b"]}),
    ],
)
def test_what_no_broker_takes_is_refused_in_tests_too(
    message: str, topic: str, more: dict[str, Any]
) -> None:
    """A handler's test passed, and its messages were refused in production."""
    broker = new_broker()

    @broker.subscriber("sums", "adders")
    async def add(body: str) -> str:
        return body

    async def go() -> None:
        async with TestEscrowMQBroker(broker) as tested:
            with pytest.raises(InvalidMessage):
                await tested.publish(message, topic, **more)
            with pytest.raises(InvalidMessage):
                await tested.request(message, topic, **more)

    asyncio.run(go())


def test_a_batch_handler_is_given_lists_in_tests_too() -> None:
    broker = new_broker()

    @broker.subscriber("paid", "mailer", batch=True)
    @broker.publisher("mailed")
    async def mail(orders: list[Order], message: EscrowMQMessage) -> list[str]:
        assert message.batch_headers == [message.headers]
        return [order.id for order in orders]

    async def go() -> None:
        async with TestEscrowMQBroker(broker) as tested:
            await tested.publish(Order(id="o-1", amount=7), "paid")
            mail.mock.assert_called_once_with([{"id": "o-1", "amount": 7}])
            with pytest.raises(SubscriberNotFound):  # a batch answers nobody
                await tested.request(Order(id="o-2", amount=7), "paid")

    asyncio.run(go())


# -- a real broker ---------------------------------------------------------------------------


def test_messages_pass_through_an_application(escrowmq_broker: Broker) -> None:
    broker = new_broker()
    router = EscrowMQRouter("shop_", ack_policy=AckPolicy.NACK_ON_ERROR)

    @router.subscriber("paid", "mailer", max_workers=4, tags="card")
    @router.publisher("mailed", headers={"by": "mailer"}, tag="mail")
    async def mail(order: Order) -> Any:
        return EscrowMQResponse(Mail(order=order.id), keys=[order.id])

    broker.include_router(router)

    async def work() -> None:
        sent = await broker.publish(
            Order(id="o-1", amount=7), "shop_paid", tag="card", headers={"from": "web"}
        )
        await escrowmq_broker.aio.wait_delivered("shop_mailed", 1)
        (event,) = escrowmq_broker.messages("shop_paid")
        assert event.message_id == sent.message_id
        assert event.properties["from"] == "web"
        assert event.properties["content-type"] == "application/json"
        (mailed,) = escrowmq_broker.messages("shop_mailed")
        assert (mailed.body, mailed.keys, mailed.tag) == (b'{"order":"o-1"}', ["o-1"], "mail")
        assert mailed.properties["by"] == "mailer"
        assert mailed.properties["correlation_id"] == event.properties["correlation_id"]

    run(broker, work)


@pytest.mark.parametrize(
    ("policy", "raised", "attempts", "dead"),
    [
        (AckPolicy.NACK_ON_ERROR, KeyError("broken"), 2, 1),
        (AckPolicy.REJECT_ON_ERROR, KeyError("broken"), 1, 1),
        (AckPolicy.ACK, KeyError("broken"), 1, 0),
        (AckPolicy.ACK_FIRST, KeyError("broken"), 1, 0),
        (AckPolicy.MANUAL, None, 2, 1),
        (AckPolicy.ACK, NackMessage(after=5), 2, 1),
        (AckPolicy.ACK, RejectMessage(), 1, 1),
    ],
)
def test_the_policy_says_what_becomes_of_a_message_whose_handler_fails(
    escrowmq_broker: Broker,
    policy: AckPolicy,
    raised: Exception | None,
    attempts: int,
    dead: int,
) -> None:
    broker = new_broker()
    seen: list[int] = []

    @broker.subscriber("paid", "mailer", ack_policy=policy, attempts_max=1, retry_after_s=5)
    async def mail(body: str, message: EscrowMQMessage) -> None:
        seen.append(message.raw_message.deliveries_before)
        if raised is not None:
            raise raised

    async def work() -> None:
        await broker.publish("x", "paid")
        await escrowmq_broker.aio.wait_consumed("mailer")
        await escrowmq_broker.aio.advance(minutes=1)
        await escrowmq_broker.aio.wait_consumed("mailer")

    run(broker, work)
    assert seen == list(range(attempts))
    assert len(escrowmq_broker.dead("mailer")) == dead


def test_a_handler_decides_by_hand(escrowmq_broker: Broker) -> None:
    broker = new_broker()

    @broker.subscriber("paid", "mailer", ack_policy=AckPolicy.MANUAL)
    async def mail(body: str, message: EscrowMQMessage) -> None:
        if body == "bad":
            await message.reject()
        else:
            await message.ack()

    async def work() -> None:
        for body in ("good", "bad"):
            await broker.publish(body, "paid")
        await escrowmq_broker.aio.wait_consumed("mailer")

    run(broker, work)
    assert escrowmq_broker.dead("mailer") == [b"bad"]


def test_a_request_is_answered_and_one_that_nobody_reads_is_not(escrowmq_broker: Broker) -> None:
    broker = new_broker()

    @broker.subscriber("sums", "adders")
    async def add(numbers: list[int]) -> int:
        return sum(numbers)

    async def work() -> None:
        answer = await broker.request([1, 2, 3], "sums")
        assert await answer.decode() == 6
        assert await broker.publisher("sums").request([4]) is not None
        with pytest.raises(ReplyTimeout):
            await broker.request([1], "nobody", timeout_ms=200)

    run(broker, work)


def test_middlewares_see_what_comes_and_goes(escrowmq_broker: Broker) -> None:
    seen: list[str] = []

    class Watching(BaseMiddleware):  # type: ignore[misc]
        async def consume_scope(self, call_next: Any, msg: Any) -> Any:
            seen.append(f"got {msg.body.decode()}")
            return await call_next(msg)

        async def publish_scope(self, call_next: Any, cmd: Any) -> Any:
            seen.append(f"sent {cmd.body}")
            return await call_next(cmd)

    broker = new_broker(middlewares=[Watching])

    @broker.subscriber("paid", "mailer")
    async def mail(body: str) -> None: ...

    async def work() -> None:
        await broker.publish("x", "paid")
        await escrowmq_broker.aio.wait_consumed("mailer")

    run(broker, work)
    assert seen == ["sent x", "got x"]


def test_a_brokers_interceptors_see_what_its_subscribers_consume(escrowmq_broker: Broker) -> None:
    """As its middlewares do. A trace ended at the publisher."""
    seen: list[str] = []

    class Watching(Interceptor):
        def before_send(self, message: Message) -> None:
            seen.append(f"sent to {message.topic}")

        def after_consume(self, message: ReceivedMessage, outcome: Consumed) -> None:
            seen.append(f"{message.topic} {outcome}")

    broker, router = new_broker(interceptors=[Watching()]), EscrowMQRouter("shop_")

    @router.subscriber("paid", "mailer")
    async def mail(body: str) -> None: ...

    @router.subscriber("other", "others", interceptors=())
    async def other(body: str) -> None: ...

    broker.include_router(router)

    async def work() -> None:
        assert await broker.ping()
        for topic, group in (("shop_paid", "mailer"), ("shop_other", "others")):
            await broker.publish("x", topic)
            await escrowmq_broker.aio.wait_consumed(group)

    run(broker, work)
    assert seen == ["sent to shop_paid", "shop_paid acknowledged", "sent to shop_other"]


def test_messages_can_be_taken_one_by_one(escrowmq_broker: Broker) -> None:
    broker = new_broker()
    paid = broker.subscriber("paid", "mailer")

    async def work() -> None:
        assert await paid.get_one(timeout=0.1) is None
        await broker.publish({"id": "o-1"}, "paid")
        message = await paid.get_one()
        assert message is not None
        assert await message.decode() == {"id": "o-1"}
        await message.ack()
        await escrowmq_broker.aio.wait_consumed("mailer")

    run(broker, work)


def test_a_handler_that_returns_nothing_publishes_null(escrowmq_broker: Broker) -> None:
    broker = new_broker()

    @broker.subscriber("paid", "mailer")
    @broker.publisher("mailed")
    async def mail(body: str) -> None: ...

    async def work() -> None:
        await broker.publish("x", "paid")
        await escrowmq_broker.aio.wait_delivered("mailed", 1)
        with pytest.raises(InvalidMessage, match="empty"):
            await broker.publish("", "paid")

    run(broker, work)
    assert escrowmq_broker.delivered("mailed") == [b"null"]


def test_a_handlers_messages_commit_with_its_database(
    escrowmq_broker: Broker, tmp_path: Path
) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'shop.db'}")
    broker = new_broker()
    outbox: AsyncOutbox

    @broker.subscriber("wanted", "orders", attempts_max=0)
    async def order(key: str) -> None:
        async with AsyncSession(engine) as session, outbox.transaction(session) as tx:
            await session.execute(sa.text("insert into orders values (:key)"), {"key": key})
            await tx.send("paid", key.encode())
            if key == "bad":
                raise KeyError(key)

    async def work() -> None:
        nonlocal outbox
        outbox = AsyncOutbox(broker.producer, engine)
        await outbox.create_tables()
        async with engine.begin() as connection:
            await connection.execute(sa.text("create table orders (id text)"))
        for key in ("good", "bad"):
            await broker.publish(key, "wanted")
        await escrowmq_broker.aio.wait_consumed("orders")
        async with engine.begin() as connection:
            found = await connection.scalars(sa.text("select id from orders"))
            assert list(found) == ["good"]
        await engine.dispose()

    run(broker, work)
    assert escrowmq_broker.delivered("paid") == [b"good"]


def test_ping_tells_whether_somebody_is_there(escrowmq_broker: Broker) -> None:
    async def go() -> list[bool]:
        nobody = EscrowMQBroker("127.0.0.1:1", group="shop", logger=None)
        return [await new_broker().ping(), await nobody.ping(0.2)]

    assert asyncio.run(go()) == [True, False]


def test_asyncapi_has_a_page() -> None:
    broker = EscrowMQBroker("127.0.0.1:9876", group="shop")

    @broker.subscriber("paid", "mailer", title="Paid")
    @broker.publisher("mailed")
    async def mail(order: Order) -> Mail:
        """Mails."""
        return Mail(order=order.id)

    page = AsyncAPI(broker).to_specification().to_jsonable()
    assert page["servers"]["development"]["protocol"] == "rocketmq"
    assert {channel["address"] for channel in page["channels"].values()} == {"paid", "mailed"}


# -- what cannot be --------------------------------------------------------------------------


def test_mistakes_are_named_where_they_are_made() -> None:
    broker = new_broker()
    broker.subscriber("paid", "mailer")
    with pytest.raises(SetupError, match="'mailer' already has a subscriber"):
        broker.subscriber("other", "mailer")
    with pytest.raises(SetupError, match="batch=True and max_records"):
        broker.subscriber("paid", "batches", batch_max=2)
    with pytest.raises(UsageError, match="batch_max=0"):
        broker.subscriber("paid", "batches", batch=True, max_records=0)
    with pytest.raises(UsageError, match="no such setting"):
        broker.subscriber("paid", "typos", attempts=2)
    with pytest.raises(SetupError, match="EscrowMQRouter is expected"):
        broker.include_router(object())


def test_nothing_is_published_before_the_broker_is_connected() -> None:
    with pytest.raises(Exception, match="not connected"):
        asyncio.run(new_broker().publish("x", "paid"))
