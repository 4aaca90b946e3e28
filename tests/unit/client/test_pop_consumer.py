"""A consumer that pops, against a scripted broker."""

from __future__ import annotations

import asyncio
import zlib
from typing import Any

import pytest

from escrowmq.aio import Consumer
from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.base.message import StoredMessage
from escrowmq.client import pop_consumer
from escrowmq.client.core.routes import MessageQueue
from escrowmq.codec.record import encode_message
from escrowmq.errors import ClientClosed, ExpressionInvalid

from .peer import Link
from .test_consumer import Script, a_script, record

POP: dict[str, Any] = {"mode": "pop", "pull_wait_ms": 500}
NOW_MS = 1 << 50


def give(script: Script, *records: bytes, popped_ms: int = NOW_MS, hidden_ms: int = 60_000) -> None:
    """Answer the next pop with these, later ones with nothing."""
    left = [records]

    def pop(link: Link, command: Command) -> None:
        if left:
            told = {
                "popTime": str(popped_ms), "invisibleTime": str(hidden_ms), "reviveQid": "0",
                "startOffsetInfo": "0 0 0", "restNum": "0",
            }  # fmt: skip
            link.reply(command, ext=told, body=b"".join(left.pop()))

    script.broker.answers[Request.POP_MESSAGE] = pop


def run(test: Any) -> None:
    asyncio.run(test())


def test_each_message_is_settled_by_its_receipt() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            give(script, *(record(n) for n in range(3)))
            async with Consumer(names, group="g", topic="T", **POP) as consumer:
                one, two, three = await consumer.receive(3)
                await one.ack()
                await one.ack()
                await two.retry(after=10)
                await three.reject()
            (asked, *_) = script.asked(Request.POP_MESSAGE)
            assert (asked["queueId"], asked["topic"], asked["exp"]) == ("-1", "T", "*")
            acks = script.asked(Request.ACK_MESSAGE)
            assert [ack["offset"] for ack in acks] == ["0", "2"]
            assert acks[0]["extraInfo"] == f"0 {NOW_MS} 60000 0 0 b 0 0"
            (change,) = script.asked(Request.CHANGE_MESSAGE_INVISIBLETIME)
            assert (change["offset"], change["invisibleTime"]) == ("1", "10000")
            (back,) = script.asked(Request.CONSUMER_SEND_MSG_BACK)
            assert (back["offset"], back["delayLevel"]) == ("1002", "-1")

    run(go)


def test_a_message_that_cannot_be_unpacked_goes_to_the_dead_letters_and_others_come() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            packed = StoredMessage(
                topic="T", body=b"no zlib", queue_id=0, queue_offset=0, log_offset=1000,
                stored_ms=1, record_size=0, sys_flag=0x301,
            )  # fmt: skip
            give(script, encode_message(packed), record(1))
            async with Consumer(names, group="g", topic="T", **POP) as consumer:
                (message,) = await consumer.receive(9)
                assert message.queue_offset == 1
                await script.broker.until(lambda: script.asked(Request.ACK_MESSAGE))
                (back,) = script.asked(Request.CONSUMER_SEND_MSG_BACK)
                assert (back["offset"], back["delayLevel"]) == ("1000", "-1")

    run(go)


def test_a_receipt_that_cannot_be_read_holds_up_no_other_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            give(script, record(0), record(1, POP_CK="nonsense"), record(2))
            async with Consumer(names, group="g", topic="T", **POP) as consumer:
                found = await consumer.receive(9)
                assert [message.queue_offset for message in found] == [0, 2]
        assert "extraInfo has 1 fields" in caplog.text

    run(go)


def test_what_waited_too_long_is_not_handed_out(caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            give(script, record(0), record(1), hidden_ms=0)
            async with Consumer(names, group="g", topic="T", **POP) as consumer:
                await script.broker.until(lambda: len(script.asked(Request.POP_MESSAGE)) == 2)
                assert await consumer.receive(9, timeout_s=0.01) == []
            assert script.asked(Request.CHANGE_MESSAGE_INVISIBLETIME) == []

    run(go)
    (told,) = [each.getMessage() for each in caplog.records if "waited" in each.getMessage()]
    assert told.startswith("2 popped messages of T")


@pytest.mark.parametrize("popped_ms", [1, 1 << 50])
def test_the_broker_s_clock_may_be_wrong(popped_ms: int) -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            give(script, record(0), popped_ms=popped_ms)
            async with Consumer(names, group="g", topic="T", **POP) as consumer:
                (message,) = await consumer.receive(9, timeout_s=5)
                assert message.queue_offset == 0

    run(go)


def test_a_broker_that_takes_pops_for_late_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(link: Link, command: Command) -> None:
        remark = "the broker[127.0.0.1] pop message is timeout too much"
        link.reply(command, Response.POLLING_TIMEOUT, remark=remark)

    async def go() -> None:
        async with a_script() as (names, script):
            script.broker.answers[Request.POP_MESSAGE] = refuse
            async with Consumer(names, group="g", topic="T", **POP):
                await script.broker.until(lambda: len(script.asked(Request.POP_MESSAGE)) == 3)

    run(go)
    told = [each.getMessage() for each in caplog.records if "clock" in each.getMessage()]
    assert len(told) == 1
    assert "this machine's clock is probably behind" in told[0]


def test_what_nobody_took_is_shown_again_at_the_end() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            give(script, record(0), record(1))
            async with Consumer(names, group="g", topic="T", **POP) as consumer:
                (one,) = await consumer.receive(1)
                await one.ack()
            (change,) = script.asked(Request.CHANGE_MESSAGE_INVISIBLETIME)
            assert change["offset"] == "1"
            with pytest.raises(ClientClosed):
                await consumer.receive(1)

    run(go)


@pytest.mark.parametrize(("held_max", "prefetch_max"), [(2, 1_000), (96, 2)])
def test_only_so_much_is_held(
    monkeypatch: pytest.MonkeyPatch, held_max: int, prefetch_max: int
) -> None:
    monkeypatch.setattr(pop_consumer, "HELD_MAX", held_max)

    async def go() -> None:
        async with a_script() as (names, script):
            give(script, record(0), record(1))
            async with Consumer(
                names, group="g", topic="T", prefetch_max=prefetch_max, **POP
            ) as consumer:
                one, _ = await consumer.receive(2)
                assert await consumer.receive(1, timeout_s=0.05) == []
                assert len(script.asked(Request.POP_MESSAGE)) == 1
                await one.ack()
                await script.broker.until(lambda: len(script.asked(Request.POP_MESSAGE)) == 2)
                assert script.asked(Request.POP_MESSAGE)[1]["maxMsgNums"] == "1"

    run(go)


def test_a_refusal_is_raised_and_a_lost_ack_is_not() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            give(script, record(0))
            refuse = Response.SUBSCRIPTION_PARSE_FAILED
            async with Consumer(names, group="g", topic="T", **POP) as consumer:
                (one,) = await consumer.receive(1)
                script.broker.answers[Request.ACK_MESSAGE] = lambda link, command: link.reply(
                    command, Response.SYSTEM_ERROR, remark="no"
                )
                await one.ack()  # it comes again when its time is over
            script.broker.answers[Request.POP_MESSAGE] = lambda link, command: link.reply(
                command, refuse, remark="no"
            )
            async with Consumer(names, group="g", topic="T", **POP) as consumer:
                with pytest.raises(ExpressionInvalid):
                    await consumer.receive(1)

    run(go)


def test_no_more_bytes_are_popped_than_may_be_held() -> None:
    """Only their count was limited, so 96 messages of 4 MiB were held for each topic and broker."""

    async def go() -> None:
        async with a_script() as (names, script):
            left, held = iter(range(9)), []

            def pop(link: Link, command: Command) -> None:
                held.append((link, command))

            def answer_all() -> None:
                while held:
                    link, command = held.pop()
                    body = zlib.compress(bytes(1_000))
                    packed = StoredMessage(
                        topic="T", body=body, queue_id=0, queue_offset=next(left), log_offset=1000,
                        stored_ms=1, record_size=0, sys_flag=0x301,
                    )  # fmt: skip
                    told = {
                        "popTime": str(NOW_MS), "invisibleTime": "60000", "reviveQid": "0",
                        "startOffsetInfo": "0 0 0", "restNum": "0",
                    }  # fmt: skip
                    link.reply(command, ext=told, body=encode_message(packed))

            script.broker.answers[Request.POP_MESSAGE] = pop
            settings: dict[str, Any] = {**POP, "prefetch_size_max": 1_500}
            async with Consumer(names, group="g", topic="T", **settings) as consumer:
                taken = []
                for _ in range(2):
                    await script.broker.until(lambda: held)
                    answer_all()
                    taken += await consumer.receive(1)
                (reader,) = consumer._state.pop_readers.values()  # type: ignore[attr-defined]
                # A third pop began when the second message was small, still compressed.
                await script.broker.until(lambda: held)
                answer_all()
                taken += await consumer.receive(1)
                assert reader.held_size == 3_000
                await asyncio.sleep(0)
                assert not held
                for message in taken:
                    message.body = b"changed by the user"
                    await message.ack()
                await script.broker.until(lambda: held)
                assert (reader.held_count, reader.held_size) == (0, 0)

    run(go)


def test_several_topics_share_the_bytes_that_may_be_held() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            give(script)
            settings: dict[str, Any] = {**POP, "prefetch_size_max": 1_000}
            async with Consumer(names, group="g", topics=["T", "%RETRY%g"], **settings) as consumer:
                await script.broker.until(lambda: len(script.asked(Request.POP_MESSAGE)) > 1)
                assert consumer._state.size_share == 500
                await consumer.unsubscribe("%RETRY%g")
                while consumer._state.size_share == 500:
                    await asyncio.sleep(0)
                assert consumer._state.size_share == 1_000

    run(go)


def test_a_topic_that_was_unsubscribed_from_is_not_popped_without_its_tags() -> None:
    """The next pop, before the queues were shared out anew, asked for all messages, and whoever
    had subscribed to few got others."""

    async def go() -> None:
        async with a_script() as (names, script):
            pops: list[tuple[Link, Command]] = []
            script.broker.answers[Request.POP_MESSAGE] = lambda link, command: pops.append(
                (link, command)
            )
            topics = {"T": "a", "U": ""}
            async with Consumer(names, group="g", topics=topics, **POP) as consumer:
                await script.broker.until(lambda: pops)
                await consumer.unsubscribe("T")
                link, command = pops[0]
                link.reply(command, Response.PULL_NOT_FOUND, remark="none")
                # A round that had begun before goes on after it.
                await consumer._state.assign_queues("T", [MessageQueue("T", "b", 0)])
                assert await consumer.receive(1, timeout_s=0.1) == []
            assert len(pops) == 1

    run(go)
