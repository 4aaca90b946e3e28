"""The consumer against a scripted broker: what real brokers do seldom, or never in a test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from escrowmq.aio import Consumer, Delivery, Interceptor, ReceivedMessage
from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.base.message import StoredMessage
from escrowmq.client import consumer_state
from escrowmq.client.core.routes import MessageQueue
from escrowmq.codec import fastjson
from escrowmq.codec.properties import parse_properties
from escrowmq.codec.record import encode_message
from escrowmq.errors import ClientClosed, GroupNotFound, PermissionDenied, UsageError, WrongThread

from .peer import DEADLINE_S, Link, Peer, a_peer, stored

QUEUE = MessageQueue("T", "b", 0)
QUICK: dict[str, Any] = {"pull_wait_ms": 500, "commit_interval_ms": 20}


def record(queue_offset: int, *, topic: str = "T", **properties: str) -> bytes:
    message = StoredMessage(
        topic=topic, body=b"body %d" % queue_offset, queue_id=0, queue_offset=queue_offset,
        log_offset=1000 + queue_offset, stored_ms=1, record_size=0, properties=properties,
    )  # fmt: skip
    return encode_message(message)


class Script:
    """A broker with one queue of topic T, whose messages a test lays out."""

    def __init__(self, broker: Peer) -> None:
        self.broker = broker
        self.records: dict[int, bytes] = {}
        self.stored_offset: int | None = None
        self.codes: list[tuple[int, int]] = []
        """Codes and next offsets with which the next pulls are answered."""
        self.members: list[str] = []
        broker.answers |= {
            Request.GET_CONSUMER_LIST_BY_GROUP: self.list_members,
            Request.QUERY_CONSUMER_OFFSET: self.tell_offset,
            Request.GET_MIN_OFFSET: lambda link, command: link.reply(command, ext={"offset": "0"}),
            Request.UPDATE_CONSUMER_OFFSET: self.commit,
            Request.PULL_MESSAGE: self.pull,
            Request.SEND_MESSAGE_V2: stored,
            Request.HEART_BEAT: self.beat,
        }

    def beat(self, link: Link, command: Command) -> None:
        self.members = [json.loads(command.body)["clientID"]]
        link.reply(command)

    def list_members(self, link: Link, command: Command) -> None:
        link.reply(command, body=json.dumps({"consumerIdList": self.members}).encode())

    def tell_offset(self, link: Link, command: Command) -> None:
        if self.stored_offset is None:
            link.reply(command, Response.QUERY_NOT_FOUND, remark="none")
        else:
            link.reply(command, ext={"offset": str(self.stored_offset)})

    def commit(self, link: Link, command: Command) -> None:
        ext = command.ext or {}
        if ext["topic"] == "T":
            self.stored_offset = int(ext["commitOffset"])
        link.reply(command)

    def pull(self, link: Link, command: Command) -> None:
        ext = command.ext or {}
        at = int(ext["queueOffset"])
        bounds = {"suggestWhichBrokerId": "0", "minOffset": "0", "maxOffset": "9"}
        if ext["topic"] != "T":
            return  # held
        if self.codes:
            code, following = self.codes.pop(0)
            link.reply(command, code, ext={**bounds, "nextBeginOffset": str(following)}, remark="r")
        elif at in self.records:
            body = self.records[at]
            link.reply(command, ext={**bounds, "nextBeginOffset": str(at + 1)}, body=body)

    def is_asked_at(self, queue_offset: int) -> bool:
        pulls = self.asked(Request.PULL_MESSAGE)
        return ("T", str(queue_offset)) in {(ext["topic"], ext["queueOffset"]) for ext in pulls}

    def has_replies(self, count: int) -> bool:
        return len(self.broker.replies) == count

    def asked(self, code: int) -> list[dict[str, str]]:
        return [command.ext or {} for command in self.broker.requests if command.code == code]


@asynccontextmanager
async def a_script(**records: bytes) -> AsyncIterator[tuple[str, Script]]:
    async with asyncio.timeout(DEADLINE_S), a_peer() as names, a_peer() as broker:
        names.be_name_server(broker.address, topics=("T", "%RETRY%g"), queues_count=1)
        yield names.address, Script(broker)


def run(test: Any) -> None:
    asyncio.run(test())


def test_a_pull_names_all_and_offsets_are_kept_as_messages_are_done_with() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            script.records = {n: record(n) for n in range(3)}
            async with Consumer(names, group="g", topic="T", tags="*", **QUICK) as consumer:
                messages = [(await consumer.receive(1))[0] for _ in range(3)]
                await messages[2].ack()
                assert await consumer.position(QUEUE) == 0
                await messages[0].ack()
                await script.broker.until(lambda: script.stored_offset == 1)
                await messages[1].ack()
                await script.broker.until(lambda: script.stored_offset == 3)
            first = next(ext for ext in script.asked(Request.PULL_MESSAGE) if ext["topic"] == "T")
            assert (first["queueOffset"], first["sysFlag"], first["consumerGroup"]) == (
                "0", "2", "g",
            )  # fmt: skip

    run(go)


def test_the_broker_may_move_an_offset() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            script.stored_offset = 0
            script.records = {0: record(0), 7: record(7)}
            async with Consumer(names, group="g", topic="T", **QUICK) as consumer:
                (first,) = await consumer.receive(1)
                await script.broker.until(lambda: script.is_asked_at(1))
                script.codes = [(Response.PULL_OFFSET_MOVED, 7)]
                await consumer.seek(QUEUE, 1)  # pulls again
                (second,) = await consumer.receive(1)
                assert second.queue_offset == 7
                await first.ack()  # of before: it changes nothing
                assert await consumer.position(QUEUE) == 7
                await second.ack()
                await script.broker.until(lambda: script.stored_offset == 8)

    run(go)


def test_a_refusal_is_raised_to_who_waits_and_flow_control_is_not() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            script.codes = [(215, 0), (Response.NO_PERMISSION, 0)]
            async with Consumer(names, group="g", topic="T", **QUICK) as consumer:
                with pytest.raises(PermissionDenied):
                    await consumer.receive(1)
                script.codes = [(Response.SUBSCRIPTION_GROUP_NOT_EXIST, 0)]
                await consumer.seek(QUEUE, 0)  # pulls again, without the pause
                with pytest.raises(GroupNotFound):
                    await anext(aiter(consumer))

    run(go)


def test_a_failure_is_tried_again() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            script.records = {0: record(0)}
            script.codes = [
                (Response.SYSTEM_BUSY, 0), (Response.SUBSCRIPTION_NOT_LATEST, 0),
                (Response.PULL_RETRY_IMMEDIATELY, 0),
            ]  # fmt: skip
            async with Consumer(names, group="g", topic="T", **QUICK) as consumer:
                (message,) = await consumer.receive(1)
                assert message.queue_offset == 0

    run(go)


def test_a_message_that_its_broker_does_not_take_back_is_sent_anew() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            script.records = {0: record(0, TAGS="t", KEYS="a b", UNIQ_KEY="u", mine="yes")}
            script.broker.answers[Request.CONSUMER_SEND_MSG_BACK] = lambda link, command: (
                link.reply(command, Response.SYSTEM_ERROR, remark="no")
            )
            async with Consumer(names, group="g", topic="T", **QUICK) as consumer:
                (message,) = await consumer.receive(1)
                await message.retry()
                await script.broker.until(lambda: script.stored_offset == 1)
            (back,) = script.asked(Request.CONSUMER_SEND_MSG_BACK)
            assert (back["offset"], back["delayLevel"], back["maxReconsumeTimes"]) == (
                "1000", "0", "16",
            )  # fmt: skip
            (sent,) = script.asked(Request.SEND_MESSAGE_V2)
            properties = parse_properties(sent["i"])
            assert sent["b"] == "%RETRY%g"
            expected = {
                "RETRY_TOPIC": "T", "UNIQ_KEY": "u", "DELAY": "3", "TAGS": "t", "KEYS": "a b",
                "mine": "yes", "ORIGIN_MESSAGE_ID": message.offset_id,
            }  # fmt: skip
            assert expected.items() <= properties.items()
            told = (sent.get("j"), properties.get("RECONSUME_TIME"))
            assert "1" in told

    run(go)


@pytest.mark.parametrize("attempts_max", [16, 2**31 - 1])
def test_a_rejected_message_that_is_sent_anew_has_numbers_that_brokers_take(
    attempts_max: int,
) -> None:
    """Celery's tasks have no limit of attempts: one more is not a number of 32 bits, so every
    broker refused the rejected task, and it ran again and again."""

    async def go() -> None:
        async with a_script() as (names, script):
            script.records = {0: record(0)}
            script.broker.answers[Request.CONSUMER_SEND_MSG_BACK] = lambda link, command: (
                link.reply(command, Response.SYSTEM_ERROR, remark="no")
            )
            settings = {**QUICK, "attempts_max": attempts_max}
            async with Consumer(names, group="g", topic="T", **settings) as consumer:
                (message,) = await consumer.receive(1)
                await message.reject()
            (sent,) = script.asked(Request.SEND_MESSAGE_V2)
            assert int(sent["l"]) < int(sent["j"]) < 2**31
            assert "DELAY" not in parse_properties(sent["i"])

    run(go)


def test_another_members_news_brings_a_new_sharing() -> None:
    async def go() -> None:
        async with (
            a_script() as (names, script),
            Consumer(names, group="g", topic="T", **QUICK) as consumer,
        ):
            await script.broker.until(lambda: script.is_asked_at(0))
            assert await consumer.queues() == [QUEUE]
            me = script.members[0]
            script.members = ["0", me]  # the other one comes first and gets the only queue
            for link in script.broker.links:
                link.ask(Request.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"})
            while await consumer.queues():
                await asyncio.sleep(0)
            await script.broker.until(lambda: script.stored_offset == 0)

    run(go)


def test_an_operator_sets_offsets_and_looks() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            script.records = {n: record(n) for n in range(6)}
            async with Consumer(names, group="g", topic="T", **QUICK) as consumer:
                await (await consumer.receive(1))[0].ack()
                (link,) = script.broker.links
                table = b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:5}}'
                link.ask(Request.RESET_CONSUMER_CLIENT_OFFSET, {"topic": "T", "group": "g"}, table)
                await script.broker.until(lambda: script.stored_offset == 5)
                (message,) = await consumer.receive(1)
                while message.queue_offset != 5:
                    (message,) = await consumer.receive(1)

                link.ask(Request.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": "T", "group": "g"})
                await script.broker.until(lambda: len(script.broker.replies) == 1)
                status = fastjson.decode_fastjson(script.broker.replies[0].body)
                assert list(status["messageQueueTable"].values()) == [5]

                link.ask(Request.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "g"})
                await script.broker.until(lambda: len(script.broker.replies) == 2)
                info = fastjson.decode_fastjson(script.broker.replies[1].body)
                (about,) = [v for key, v in info["mqTable"].items() if '"T"' in key]
                assert (about["cachedMsgCount"], about["commitOffset"]) == (1, 5)
                assert info["properties"]["PROP_CLIENT_VERSION"] == "V5_3_3"
                assert {one["topic"] for one in info["subscriptionSet"]} == {"T", "%RETRY%g"}

                link.ask(Request.CONSUME_MESSAGE_DIRECTLY, {"consumerGroup": "g"}, record(1))
                await script.broker.until(lambda: len(script.broker.replies) == 3)
                assert script.broker.replies[2].code == Response.SYSTEM_ERROR

    run(go)


def test_an_operator_lets_a_handler_consume() -> None:
    async def go() -> None:
        seen: list[Delivery] = []

        async def handle(message: Delivery) -> None:
            seen.append(message)
            await message.ack()
            if message.queue_offset == 2:
                raise ZeroDivisionError

        async with (
            a_script() as (names, script),
            Consumer(names, group="g", topic="T", handler=handle, **QUICK),
        ):
            (link,) = script.broker.links
            for number, result in ((1, "CR_SUCCESS"), (2, "CR_THROW_EXCEPTION")):
                link.ask(
                    Request.CONSUME_MESSAGE_DIRECTLY,
                    {"consumerGroup": "g", "brokerName": "b"},
                    record(number, topic="%RETRY%g", RETRY_TOPIC="T"),
                )
                await script.broker.until(partial(script.has_replies, number))
                answer = json.loads(script.broker.replies[-1].body)
                assert answer["consumeResult"] == result
            assert [message.topic for message in seen] == ["T", "T"]

    run(go)


def test_a_consumer_is_used_while_it_is_open_and_where_it_belongs() -> None:
    async def go() -> None:
        async with a_script() as (names, _):
            consumer = Consumer(names, group="g", topic="T", **QUICK)
            with pytest.raises(ClientClosed, match="not open"):
                await consumer.receive(1)
            async with consumer:
                await consumer.open()
                with pytest.raises(WrongThread):
                    await asyncio.to_thread(lambda: asyncio.run(consumer.receive(1)))
                with pytest.raises(UsageError, match="not read"):
                    await consumer.position(MessageQueue("U", "b", 0))
                waiting = asyncio.create_task(consumer.receive(1))
                await asyncio.sleep(0)
                await consumer.close()
                with pytest.raises(ClientClosed):
                    await waiting
            with pytest.raises(ClientClosed):
                await consumer.open()

    run(go)


def test_a_message_from_nowhere_cannot_be_settled() -> None:
    async def go() -> None:
        with pytest.raises(UsageError, match="no consumer"):
            await Delivery("T", b"x").ack()

    run(go)


def test_a_handler_may_close_its_consumer_and_its_message_is_acknowledged() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            script.records = {0: record(0)}

            async def handle(message: Delivery) -> None:
                await consumer.close()

            consumer = Consumer(names, group="g", topic="T", handler=handle, **QUICK)
            async with consumer:
                await consumer.wait()
            assert script.stored_offset == 1

    run(go)


def test_few_bytes_are_held() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            script.records = {n: record(n) for n in range(3)}
            settings = {**QUICK, "prefetch_size_max": 1}
            async with Consumer(names, group="g", topic="T", **settings) as consumer:
                (first,) = await consumer.receive(1)
                await script.broker.until(lambda: script.stored_offset == 0)
                assert not script.is_asked_at(1)
                await first.ack()
                (second,) = await consumer.receive(1)
                assert second.queue_offset == 1

    run(go)


def test_few_offsets_are_spanned() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            script.records = {n: record(n) for n in range(9)}
            settings = {**QUICK, "prefetch_span_max": 3}
            async with Consumer(names, group="g", topic="T", **settings) as consumer:
                first, second, third = [(await consumer.receive(1))[0] for _ in range(3)]
                await second.ack()
                await third.ack()
                assert await consumer.receive(1, timeout_s=0.05) == []
                assert not script.is_asked_at(3)
                await first.ack()
                assert (await consumer.receive(1))[0].queue_offset == 3

    run(go)


def test_a_message_that_no_broker_takes_back_comes_again_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumer_state, "_KEEP_HERE_S", 0.01)

    def refuse(link: Link, command: Command) -> None:
        link.reply(command, Response.MESSAGE_ILLEGAL, remark="no")

    async def go() -> None:
        async with a_script() as (names, script):
            script.records = {0: record(0)}
            for code in (Request.CONSUMER_SEND_MSG_BACK, Request.SEND_MESSAGE_V2):
                script.broker.answers[code] = refuse
            async with Consumer(names, group="g", topic="T", **QUICK) as consumer:
                (message,) = await consumer.receive(1)
                await message.retry()
                (again,) = await consumer.receive(1)
                assert (again.queue_offset, again.deliveries_before) == (0, 1)
                assert await consumer.position(QUEUE) == 0
                await again.ack()
                assert await consumer.position(QUEUE) == 1

    run(go)


class Noting(Interceptor):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []

    def before_consume(self, message: ReceivedMessage) -> None:
        self.told.append(("before", message.queue_offset))
        raise ZeroDivisionError

    def after_consume(self, message: ReceivedMessage, outcome: str) -> None:
        self.told.append((outcome, message.queue_offset))


def test_interceptors_take_part() -> None:
    async def go() -> None:
        noting = Noting()
        async with a_script() as (names, script):
            script.records = {n: record(n) for n in range(3)}
            settings = {**QUICK, "interceptors": [noting]}
            async with Consumer(names, group="g", topic="T", **settings) as consumer:
                one, two, three = [(await consumer.receive(1))[0] for _ in range(3)]
                await one.ack()
                await one.ack()
                with pytest.raises(UsageError, match="was acknowledged before"):
                    await one.retry()
                await two.retry()
                await three.reject()
        before = [("before", n) for n in range(3)]
        assert noting.told == [*before, ("acknowledged", 0), ("retried", 1), ("rejected", 2)]

    run(go)


def test_a_message_that_cannot_be_unpacked_goes_to_the_dead_letters() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            packed = StoredMessage(
                topic="T", body=b"no zlib", queue_id=0, queue_offset=0, log_offset=1000,
                stored_ms=1, record_size=0, sys_flag=0x301,
            )  # fmt: skip
            script.records = {0: encode_message(packed) + record(1)}
            async with Consumer(names, group="g", topic="T", **QUICK) as consumer:
                (message,) = await consumer.receive(9)
                assert message.queue_offset == 1
                await script.broker.until(lambda: script.asked(Request.CONSUMER_SEND_MSG_BACK))
                (back,) = script.asked(Request.CONSUMER_SEND_MSG_BACK)
                assert (back["offset"], back["delayLevel"]) == ("1000", "-1")
                await script.broker.until(lambda: script.stored_offset == 1)

    run(go)


def test_a_message_that_comes_again_tells_both_its_topics() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            again = record(0, topic="%RETRY%g", RETRY_TOPIC="T")

            def pull(link: Link, command: Command) -> None:
                ext = command.ext or {}
                if ext["topic"] == "%RETRY%g" and ext["queueOffset"] == "0":
                    told = {"suggestWhichBrokerId": "0", "minOffset": "0", "maxOffset": "1"}
                    link.reply(command, ext={**told, "nextBeginOffset": "1"}, body=again)

            script.broker.answers[Request.PULL_MESSAGE] = pull
            async with Consumer(names, group="g", topic="T", **QUICK) as consumer:
                (message,) = await consumer.receive(1)
                assert (message.topic, message.queue) == ("T", MessageQueue("%RETRY%g", "b", 0))
                assert await consumer.position(message.queue) == 0
                await message.ack()

    run(go)
