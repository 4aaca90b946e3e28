"""Sends that wait for company: what leaves together, and what each caller hears."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import escrowmq
from escrowmq.aio import Interceptor, Message, Producer, SendResult
from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.client.lingering import copy_error
from escrowmq.codec.batch_body import decode_batch
from escrowmq.codec.properties import decode_properties, parse_properties
from escrowmq.errors import (
    BrokerBusy,
    ClientClosed,
    InvalidMessage,
    MessageRefused,
    RequestTimeout,
    ResponseError,
    SendFailed,
    UsageError,
)

from .peer import Link, Peer, a_place, stored
from .test_plain_producer import Place

SEND = Request.SEND_MESSAGE_V2
BATCH = Request.SEND_BATCH_MESSAGE
LONG: Any = {"linger_ms": 60_000, "timeout_ms": 120_000}
"""Nothing leaves for having waited so long; it is flushed."""


def run(test: Any) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


@asynccontextmanager
async def lingering(*topics: str, **settings: Any) -> AsyncIterator[tuple[Peer, Producer]]:
    """A broker, and a producer whose messages linger until they are flushed."""
    async with (
        a_place(*(topics or ("T",))) as (names, broker),
        Producer(names.address, group="PG", **LONG, **settings) as producer,
    ):
        yield broker, producer


def told(broker: Peer) -> list[list[bytes]]:
    """The bodies of each send that a broker was told, in order."""
    return [
        [body for _, body, _ in decode_batch(command.body)]
        if command.code == BATCH
        else [command.body]
        for command in broker.requests
        if command.code in (SEND, BATCH)
    ]


async def send_all(producer: Producer, *messages: Message) -> list[asyncio.Task[SendResult]]:
    """Begin sends, in order; they linger then."""
    tasks = [asyncio.create_task(producer.send(message)) for message in messages]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


def test_sends_of_one_topic_leave_as_one_batch_and_each_hears_of_its_own() -> None:
    async def go() -> None:
        async with lingering("T", "U") as (broker, producer):
            messages = [
                Message("T", b"1", tag="a", keys=["k"], properties={"x": "y"}, flag=3),
                Message("U", b"2"),
                Message("T", b"3"),
            ]
            tasks = await send_all(producer, *messages)
            await producer.flush()
            one, two, three = await asyncio.gather(*tasks)
            assert sorted(told(broker)) == [[b"1", b"3"], [b"2"]]
            (batch,) = [each for each in broker.requests if each.code == BATCH]
            (flag, _, first), (_, _, second) = decode_batch(batch.body)
            assert flag == 3
            assert decode_properties(first) == {
                "x": "y", "KEYS": "k", "TAGS": "a", "WAIT": "true", "UNIQ_KEY": one.message_id,
            }  # fmt: skip
            assert decode_properties(second)["UNIQ_KEY"] == three.message_id
            assert (one.offset, three.offset, two.offset) == (5, 6, 5)
            assert (one.queue.topic, two.queue.topic) == ("T", "U")

    run(go)


def test_what_is_changed_while_it_lingers_leaves_as_it_was_sent() -> None:
    async def go() -> None:
        async with lingering("T", "U") as (broker, producer):
            message = Message("T", b"1")
            tasks = await send_all(producer, message)
            message.topic, message.body = "U", b"2"
            tasks += await send_all(producer, message)
            message.topic = "V"
            await producer.flush()
            assert sorted(told(broker)) == [[b"1"], [b"2"]]
            assert [(await task).queue.topic for task in tasks] == ["T", "U"]

    run(go)


def test_a_message_without_company_leaves_as_itself_after_its_time() -> None:
    async def go() -> None:
        async with (
            a_place("T") as (names, broker),
            Producer(names.address, group="PG", linger_ms=1) as producer,
        ):
            sent = await producer.send("T", b"x", keys=["k"])
            (command,) = [each for each in broker.requests if each.code == SEND]
            assert parse_properties((command.ext or {})["i"])["UNIQ_KEY"] == sent.message_id

    run(go)


def test_a_batch_that_is_full_leaves_at_once() -> None:
    async def go() -> None:
        async with lingering(batch_size=1_000) as (broker, producer):
            tasks = await send_all(producer, *[Message("T", b"x" * 200)] * 6)
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait_for(producer.send("T", b"y" * 2_000), 10)
            assert [len(bodies) for bodies in told(broker)] == [3, 3, 1]
            await asyncio.gather(*tasks)

    run(go)


def test_what_no_batch_can_have_goes_alone_and_its_key_keeps_the_order() -> None:
    async def go() -> None:
        async with lingering() as (broker, producer):
            tasks = await send_all(
                producer,
                Message("T", b"1", order_key="k"),
                Message("T", b"2", order_key="k"),
                Message("T", b"late", order_key="k", delay=3),
                Message("T", b"3", order_key="k"),
                Message("T", b"x" * 5_000, order_key="k"),  # which is compressed
                Message("T", b"4", order_key="k"),
                Message("T", b"5", order_key="k"),
            )
            await producer.flush()
            results = await asyncio.gather(*tasks)
            seen = told(broker)
            assert [seen[0], seen[1], seen[2], seen[4]] == [
                [b"1", b"2"], [b"late"], [b"3"], [b"4", b"5"],
            ]  # fmt: skip
            packed = [each for each in broker.requests if each.code == SEND][2]
            assert (packed.ext or {})["f"] == str(0x301)
            assert len({result.queue for result in results}) == 1

    run(go)


def test_the_next_batch_of_a_key_waits_for_the_answer_to_the_one_before() -> None:
    async def go() -> None:
        async with lingering() as (broker, producer):
            held: list[tuple[Link, Command]] = []
            broker.answers[BATCH] = lambda link, command: held.append((link, command))
            first = await send_all(producer, *[Message("T", b"a", order_key="k")] * 2)
            flushes = [asyncio.create_task(producer.flush())]
            await broker.until(lambda: held)
            second = await send_all(producer, *[Message("T", b"b", order_key="k")] * 2)
            flushes.append(asyncio.create_task(producer.flush()))
            free = await send_all(producer, Message("T", b"c"))
            flushes.append(asyncio.create_task(producer.flush()))
            await asyncio.gather(*free)
            assert told(broker) == [[b"a", b"a"], [b"c"]]
            broker.answers[BATCH] = stored
            stored(*held[0])
            await asyncio.gather(*first, *second, *flushes)
            assert told(broker) == [[b"a", b"a"], [b"c"], [b"b", b"b"]]

    run(go)


def test_a_message_that_cannot_be_is_told_to_its_caller_and_to_nobody_else() -> None:
    async def go() -> None:
        async with lingering() as (broker, producer):
            tasks = await send_all(
                producer,
                Message("T", b"1"),
                Message("T", b""),
                Message("T", b"x", properties={"a": "\x01"}),
                Message("T", b"2"),
            )
            await producer.flush()
            good, empty, odd, other = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(empty, InvalidMessage)
            assert isinstance(odd, InvalidMessage)
            assert isinstance(good, SendResult)
            assert isinstance(other, SendResult)
            assert told(broker) == [[b"1", b"2"]]

    run(go)


def test_a_refused_batch_is_sent_one_by_one_as_the_broker_does_not_say_which_is_wrong() -> None:
    async def go() -> None:
        async with lingering() as (broker, producer):
            broker.answers[BATCH] = lambda link, command: link.reply(command, 13, remark="bad one")

            def single(link: Link, command: Command) -> None:
                if command.body == b"bad":
                    link.reply(command, 13, remark="bad one")
                else:
                    stored(link, command)

            broker.answers[SEND] = single
            tasks = await send_all(producer, *(Message("T", body) for body in (b"1", b"bad", b"2")))
            await producer.flush()
            one, bad, two = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(bad, MessageRefused)
            assert isinstance(one, SendResult)
            assert isinstance(two, SendResult)

    run(go)


def test_a_batch_that_fails_tells_each_caller_with_an_error_of_its_own() -> None:
    async def go() -> None:
        async with lingering(retries=1) as (broker, producer):
            broker.answers[BATCH] = lambda link, command: link.reply(command, 2, remark="planted")
            tasks = await send_all(producer, *[Message("T", b"x")] * 3)
            await producer.flush()
            errors = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(error, BrokerBusy) for error in errors)
            assert len({id(error) for error in errors}) == 3
            assert all("planted" in str(error) for error in errors)
            assert told(broker) == [[b"x"] * 3] * 2

    run(go)


def test_a_caller_who_is_cancelled_takes_his_message_back_if_it_has_not_left() -> None:
    async def go() -> None:
        async with lingering() as (broker, producer):
            tasks = await send_all(producer, *(Message("T", body) for body in (b"1", b"2", b"3")))
            tasks[1].cancel()
            await asyncio.wait([tasks[1]])
            await producer.flush()
            await asyncio.gather(tasks[0], tasks[2])
            assert told(broker) == [[b"1", b"3"]]
            held: list[tuple[Link, Command]] = []
            broker.answers[BATCH] = lambda link, command: held.append((link, command))
            tasks = await send_all(producer, *[Message("T", b"x")] * 2)
            flush = asyncio.create_task(producer.flush())
            await broker.until(lambda: held)
            tasks[0].cancel()
            await asyncio.wait([tasks[0]])
            stored(*held[0])
            assert isinstance(await tasks[1], SendResult)
            await flush

    run(go)


def test_close_sends_what_lingers() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker):
            async with Producer(names.address, group="PG", **LONG) as producer:
                tasks = await send_all(producer, *[Message("T", b"x")] * 3)
            assert all(isinstance(each, SendResult) for each in await asyncio.gather(*tasks))
            assert told(broker) == [[b"x"] * 3]
            with pytest.raises(ClientClosed):
                await producer.send("T", b"x")

    run(go)


def test_callers_hear_of_it_when_the_client_ends_under_their_feet() -> None:
    async def go() -> None:
        async with lingering() as (broker, producer):
            broker.answers[BATCH] = lambda link, command: None
            tasks = await send_all(producer, *[Message("T", b"x")] * 2)
            tasks += await send_all(producer, *[Message("T", b"x", order_key="k")] * 3)
            flush = asyncio.create_task(producer.flush())
            await broker.until(lambda: len(told(broker)) == 2)
            tasks += await send_all(producer, *[Message("T", b"x", order_key="k")] * 3)
            second = asyncio.create_task(producer.flush())
            await asyncio.sleep(0)
            producer.instance.simulate_crash()
            errors = await asyncio.gather(*tasks, return_exceptions=True)
            assert {type(error) for error in errors} <= {ClientClosed, SendFailed}
            await asyncio.gather(flush, second)

    run(go)


def test_too_many_that_linger_wait_for_room_and_no_longer_than_their_time() -> None:
    async def go() -> None:
        async with lingering(inflight_max=2) as (_, producer):
            tasks = await send_all(producer, *[Message("T", b"x")] * 2)
            with pytest.raises(RequestTimeout, match="50 ms"):
                await producer.send("T", b"x", timeout_ms=50)
            third = await send_all(producer, Message("T", b"x"))
            await producer.flush()
            await asyncio.gather(*tasks)
            await send_all(producer)
            await producer.flush()
            await asyncio.gather(*third)

    run(go)


def test_a_message_with_its_own_time_leaves_alone_with_it() -> None:
    async def go() -> None:
        async with lingering() as (broker, producer):
            broker.answers[SEND] = lambda link, command: None
            with pytest.raises(RequestTimeout, match="may be stored"):
                await producer.send("T", b"x", timeout_ms=500)

    run(go)


def test_interceptors_hear_of_each_message() -> None:
    class Notes(Interceptor):
        def __init__(self) -> None:
            self.before: list[bytes] = []
            self.after: list[tuple[bytes, bool]] = []

        def before_send(self, message: Message) -> None:
            self.before.append(message.body)
            message.properties["seen"] = "yes"

        def after_send(self, message: Message, result: Any, error: Any) -> None:
            self.after.append((message.body, error is None))

    async def go() -> None:
        notes = Notes()
        async with a_place("T") as (names, broker):
            async with Producer(
                names.address, group="PG", **LONG, interceptors=[notes]
            ) as producer:
                tasks = await send_all(producer, Message("T", b"1"), Message("T", b"2"))
                await producer.flush()
                await asyncio.gather(*tasks)
            (batch,) = [each for each in broker.requests if each.code == BATCH]
            assert all(
                decode_properties(encoded)["seen"] == "yes"
                for _, _, encoded in decode_batch(batch.body)
            )
            assert notes.before == [b"1", b"2"]
            assert notes.after == [(b"1", True), (b"2", True)]

    run(go)


def test_threads_share_batches_too() -> None:
    place = Place()
    place.broker.answers[BATCH] = stored
    try:
        with (
            escrowmq.Producer(place.names.address, group="PG", linger_ms=20) as producer,
            concurrent.futures.ThreadPoolExecutor(8) as pool,
        ):
            results = list(pool.map(lambda n: producer.send("T", b"%d" % n), range(64)))
            producer.flush()
        bodies = [body for each in told(place.broker) for body in each]
        assert sorted(bodies) == sorted(b"%d" % n for n in range(64))
        assert len({result.message_id for result in results}) == 64
        assert len(told(place.broker)) < 64
    finally:
        place.close()


def test_an_error_for_one_more_caller_is_told_as_the_first() -> None:
    cause = KeyError("planted")
    failed = SendFailed("no way", (("b", cause),))
    failed.__cause__ = cause
    refused = ResponseError("no", code=2, address="b:1")
    for error in (failed, refused):
        own = copy_error(error)
        assert (type(own), str(own), own.__dict__) == (type(error), str(error), error.__dict__)
        assert own is not error
    assert copy_error(failed).__cause__ is cause


@pytest.mark.parametrize("settings", [{"linger_ms": -1}, {"batch_size": 0}, {"linger_ms": 3_000}])
def test_odd_settings_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        Producer("127.0.0.1:1", group="PG", **settings)  # type: ignore[arg-type]


def test_half_a_character_uses_up_no_room() -> None:
    async def go() -> None:
        async with lingering("T", inflight_max=2) as (_, producer):
            for _ in range(3):
                with pytest.raises(InvalidMessage, match="half a character"):
                    await producer.send("T", b"x", tag="\ud83d")
            (task,) = await send_all(producer, Message("T", b"x"))
            await producer.flush()
            await task

    run(go)
