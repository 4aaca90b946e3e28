"""Messages whose consumer was cancelled, interrupted, or has a handler of another kind: none is
lost, none stalls its queue, and nothing ends without a word."""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

import escrowmq
from escrowmq.aio import Consumer, Delivery, Interceptor
from escrowmq.base.codes import Request, Response
from escrowmq.errors import UsageError, WrongThread

from .peer import a_peer
from .test_consumer import QUEUE, QUICK, Script, a_script, record

BACK = Request.CONSUMER_SEND_MSG_BACK


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 30))


async def consumed(count: int, **settings: Any) -> tuple[list[dict[str, str]], int | None]:
    """Let a handler have so many messages; what was handed back, and the offset that was kept."""
    async with a_script() as (names, script):
        script.records = {n: record(n) for n in range(count)}
        async with Consumer(names, group="g", topic="T", concurrency=2, **QUICK, **settings):
            await script.broker.until(lambda: script.stored_offset == count)
        return script.asked(BACK), script.stored_offset


def cancelled() -> asyncio.Future[None]:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.cancel()
    return future


def test_a_cancellation_that_a_handler_meets_or_makes_is_its_failure_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handle(message: Delivery) -> None:
        if message.queue_offset < 4:
            await cancelled()
        elif message.queue_offset < 8:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)

    async def go() -> None:
        back, _ = await consumed(12, handler=handle)
        assert sorted(int(one["offset"]) for one in back) == [1000 + n for n in range(8)]

    run(go())
    assert len([text for text in caplog.messages if "the handler failed" in text]) == 8


def test_an_interrupt_in_a_handler_ends_no_thread_but_the_main_one() -> None:
    def work() -> None:
        async def handle(message: Delivery) -> None:
            raise SystemExit if message.queue_offset else KeyboardInterrupt

        async def go() -> None:
            assert len((await consumed(2, handler=handle))[0]) == 2

        run(go())
        done.set()

    done = threading.Event()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
    assert done.is_set()


def test_a_retry_that_is_cancelled_is_done_all_the_same() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            script.records = {0: record(0), 1: record(1)}
            held: list[Any] = []
            script.broker.answers[BACK] = lambda link, command: held.append((link, command))
            async with Consumer(names, group="g", topic="T", **QUICK) as consumer:
                (message,) = await consumer.receive(1)
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await message.retry()
                await message.retry()  # by the book; it is under way
                assert await consumer.position(QUEUE) == 0
                link, command = held.pop()
                link.reply(command)
                await script.broker.until(lambda: script.stored_offset == 1)
                assert not held

    run(go())


def test_an_acknowledgement_in_a_loop_that_is_cancelled_is_made_up_for() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            script.records = {0: record(0), 1: record(1)}
            async with Consumer(names, group="g", topic="T", **QUICK) as consumer:
                messages = aiter(consumer)
                await anext(messages)
                await consumer.pause()
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await anext(messages)
                await consumer.resume()
                assert (await anext(messages)).queue_offset == 1
            assert script.stored_offset == 2

    run(go())


def test_what_was_taken_and_reached_nobody_is_handed_out_again() -> None:
    async def go() -> None:
        for is_orderly in (False, True):
            async with a_script() as (names, script):
                script.broker.answers[Request.LOCK_BATCH_MQ] = lambda link, command: link.reply(
                    command, body=b'{"lockOKMQSet":[{"topic":"T","brokerName":"b","queueId":0}]}'
                )
                script.records = {n: record(n) for n in range(3)}
                settings = {**QUICK, "is_orderly": is_orderly, "suspend_ms": 10}
                async with Consumer(names, group="g", topic="T", **settings) as consumer:
                    taken = await consumer.take_undelivered(2)
                    found = [message.queue_offset for message in taken]
                    consumer.put_back(taken)
                    while len(again := await consumer.receive(9)) < len(found):
                        consumer.put_back([*again])
                    assert [m.queue_offset for m in again][: len(found)] == found

    run(go())


def test_a_damaged_record_is_said_aloud_and_does_not_end_the_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("escrowmq.client.core.pulling.REFUSED_PAUSE_S", 0.01)

    async def go() -> None:
        async with a_script() as (names, script):
            script.records = {0: record(0)[:-3]}
            async with Consumer(names, group="g", topic="T", **QUICK) as consumer:
                await script.broker.until(lambda: script.is_asked_at(0))
                await asyncio.sleep(0)
                script.records[0] = record(0)
                assert [m.queue_offset for m in await consumer.receive(1, timeout_s=20)] == [0]

    run(go())


def test_work_that_fails_begins_anew_and_is_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("escrowmq.client.instance._RESTART_PAUSE_S", 0.01)

    async def go() -> None:
        times: list[int] = []

        async def work() -> None:
            times.append(1)
            if len(times) == 1:
                raise ZeroDivisionError
            if len(times) == 2:
                await cancelled()

        async with (
            a_script() as (names, _),
            Consumer(names, group="g", topic="T", **QUICK) as consumer,
        ):
            await consumer.instance.keep_running("planted work", work)
            assert len(times) == 3
            assert consumer.instance.failures_count == 2

    run(go())
    assert caplog.messages.count("planted work failed, and is restarted") == 2


def test_a_running_group_misses_nothing_of_queues_that_appear_although_it_wants_the_last() -> None:
    at = Request.SEARCH_OFFSET_BY_TIMESTAMP

    async def go() -> None:
        async with a_peer() as names, a_peer() as broker:
            script = Script(broker)
            for code in (at, Request.GET_MAX_OFFSET):
                broker.answers[code] = lambda link, command: link.reply(
                    command, ext={"offset": "0"}
                )
            broker.answers[Request.QUERY_CONSUMER_OFFSET] = lambda link, command: link.reply(
                command, Response.QUERY_NOT_FOUND
            )
            names.be_name_server(broker.address, topics=("T",), queues_count=1)
            settings: dict[str, Any] = {"consume_from": "last", "route_interval_ms": 50, **QUICK}
            async with Consumer(names.address, group="g", topics=["T", "U"], **settings):
                # What a first member begins with is kept at once, or the next begins later still.
                await broker.until(
                    lambda: ("T", 0) in asked(script, Request.UPDATE_CONSUMER_OFFSET)
                )
                assert asked(script, Request.GET_MAX_OFFSET) == {("T", 0)}
                assert not asked(script, at)
                names.be_name_server(broker.address, topics=("T", "U"), queues_count=2)
                await broker.until(lambda: len(asked(script, at)) == 3)
                assert asked(script, at) == {("T", 1), ("U", 0), ("U", 1)}
                assert asked(script, Request.GET_MAX_OFFSET) == {("T", 0)}

    def asked(script: Script, code: int) -> set[tuple[str, int]]:
        return {(ext["topic"], int(ext["queueId"])) for ext in script.asked(code)}

    run(go())


def test_a_queue_whose_master_is_gone_is_read_from_its_slave() -> None:
    async def go() -> None:
        async with a_peer() as names, a_peer() as slave:
            script = Script(slave)
            script.records = {4: record(4)}
            names.be_name_server(slave.address, topics=("T",), queues_count=1, broker_id=1)
            for stored_offset in (None, 4):  # of a group that is new, and of one that is not
                script.stored_offset = stored_offset
                slave.answers[Request.GET_MIN_OFFSET] = lambda link, command: link.reply(
                    command, ext={"offset": "4"}
                )
                async with Consumer(names.address, group="g", topic="T", **QUICK) as consumer:
                    (message,) = await consumer.receive()
                    await message.ack()
                    await slave.until(lambda: script.stored_offset == 5)
                assert message.queue_offset == 4

    run(go())


# -- kinds of handlers ---------------------------------------------------------------------------


def test_a_plain_handler_of_an_asyncio_consumer_settles_without_awaiting() -> None:
    def handle(message: escrowmq.Delivery) -> None:
        if message.queue_offset == 0:
            message.retry()
        elif message.queue_offset == 1:
            message.reject()
        else:
            message.ack()

    async def go() -> None:
        back, _ = await consumed(3, handler=handle)
        assert [(one["offset"], one["delayLevel"]) for one in back] == [
            ("1000", "0"),
            ("1001", "-1"),
        ]

    run(go())


def test_a_plain_handlers_delivery_on_the_event_loop_is_refused_aloud(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def inner(message: Any) -> None:
        message.retry()

    async def go() -> None:
        back, _ = await consumed(1, handler=lambda message: inner(message))  # noqa: PLW0108
        assert len(back) == 1

    run(go())
    assert any(isinstance((r.exc_info or (0, 0))[1], WrongThread) for r in caplog.records)


@pytest.mark.parametrize("kind", [Consumer, escrowmq.Consumer])
def test_a_handler_that_takes_nothing_is_refused_before_it_is_called(kind: Any) -> None:
    handler: Any
    for handler in (lambda: None, functools.partial(lambda message: None, 1)):
        for name in ("handler", "on_assigned", "on_revoked"):
            with pytest.raises(UsageError, match=f"{name}=.* one argument"):
                kind("localhost:1", group="g", topic="T", **{name: handler})


@pytest.mark.parametrize("kind", [Consumer, escrowmq.Consumer])
def test_a_handler_with_a_yield_is_refused_as_calling_it_does_nothing(kind: Any) -> None:
    """Every message would be acknowledged, and none handled."""

    def handler(message: Any) -> Any:
        yield message

    with pytest.raises(UsageError, match="has a yield"):
        kind("localhost:1", group="g", topic="T", handler=handler)


# -- what the log says ---------------------------------------------------------------------------


class Ears(Interceptor):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def after_consume(self, message: Any, outcome: str) -> None:
        self.heard.append(outcome)


@pytest.mark.parametrize(("attempts_max", "end"), [(3, "comes again"), (0, "dead letters of 'g'")])
def test_a_failure_names_the_message_and_what_becomes_of_it(
    attempts_max: int, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    ears = Ears()

    async def handle(message: Delivery) -> None:
        raise KeyError("planted")

    async def go() -> None:
        async with a_script() as (names, script):
            script.records = {0: record(0, KEYS="o-1", UNIQ_KEY="id")}
            settings = {**QUICK, "attempts_max": attempts_max, "interceptors": [ears]}
            async with Consumer(names, group="g", topic="T", handler=handle, **settings):
                await script.broker.until(lambda: script.stored_offset == 1)

    with caplog.at_level(logging.ERROR):
        run(go())
    (told,) = [text for text in caplog.messages if "the handler failed" in text]
    assert told.startswith(
        f"the handler failed: message id of 'T', keys o-1, attempt 1 of {attempts_max + 1}; it "
    )
    assert told.endswith(end)
    assert ears.heard == ["retried" if attempts_max else "rejected"]


def test_the_pause_before_a_message_comes_again_can_be_chosen() -> None:
    async def handle(message: Delivery) -> None:
        raise KeyError("planted")

    async def go() -> None:
        for given, level in ((20, "4"), ([1, 60], "1"), ((), "0")):
            back, _ = await consumed(1, handler=handle, retry_after_s=given)
            assert [one["delayLevel"] for one in back] == [level]

    run(go())
    for wrong in (-1, [1, "soon"], 10_000):
        with pytest.raises(UsageError, match="retry_after_s="):
            Consumer("localhost:1", group="g", topic="T", retry_after_s=wrong)  # type: ignore[arg-type]


# -- the end -------------------------------------------------------------------------------------


def test_a_close_that_is_cancelled_goes_on_and_can_be_waited_for_again() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            consumer = await Consumer(names, group="g", topic="T", **QUICK).open()
            producer = await escrowmq.aio.Producer(names, group="p").open()
            await producer.send("T", b"x")
            held: list[Any] = []
            script.broker.answers[Request.UNREGISTER_CLIENT] = lambda *asked: held.append(asked)
            for client in (consumer, producer):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await client.close()
                assert "closed" in repr(client)
            links = len(script.broker.links)
            for link, command in held:
                link.reply(command)
            script.broker.answers.pop(Request.UNREGISTER_CLIENT)
            await asyncio.gather(consumer.close(), producer.close())
            await script.broker.until(lambda: not script.broker.links)
            assert links == 2

    run(go())


def test_an_opening_that_is_cancelled_leaves_nothing_open() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            script.broker.answers[Request.HEART_BEAT] = lambda link, command: None
            before = len(asyncio.all_tasks())
            for make in (
                lambda: Consumer(names, group="g", topic="T", request_timeout_ms=3_000),
                lambda: escrowmq.aio.Producer(
                    names, group="p", topics=["T"], request_timeout_ms=3_000
                ),
            ):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2), make():
                        raise AssertionError("it opened")
            await script.broker.until(lambda: not script.broker.links)
            gc.collect()
            assert len(asyncio.all_tasks()) == before

    run(go())


def _handlers_for_the_type_checker() -> None:
    """Never called: mypy reads it, and an ignore that is not needed is an error."""

    def plain(message: escrowmq.Delivery) -> None:
        message.ack()

    def many(messages: list[escrowmq.Delivery]) -> None:
        messages[0].ack()

    async def awaited(message: Delivery) -> None:
        await message.ack()

    async def plain_delivery_awaited(message: escrowmq.Delivery) -> None:
        message.ack()

    def awaited_delivery_plain(message: Delivery) -> None:
        del message

    for kind in (escrowmq.Consumer, Consumer):
        kind(group="g", handler=plain)
        kind(group="g", handler=many)
        kind(group="g", handler=awaited)
        kind(group="g", handler=plain_delivery_awaited)  # type: ignore[arg-type]
        kind(group="g", handler=awaited_delivery_plain)  # type: ignore[arg-type]
