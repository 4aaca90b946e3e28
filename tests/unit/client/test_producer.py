from __future__ import annotations

import asyncio
import datetime as dt
import zlib
from typing import Any

import pytest

from escrowmq.aio import (
    Interceptor,
    Message,
    MessageQueue,
    Producer,
    SendResult,
    SendStatus,
)
from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.client.client_settings import parse_client_options
from escrowmq.client.instance import ClientInstance
from escrowmq.codec.batch_body import decode_batch
from escrowmq.codec.properties import decode_properties, parse_properties
from escrowmq.errors import (
    BrokerBusy,
    ClientClosed,
    InvalidMessage,
    MessageRefused,
    NoNameServer,
    PermissionDenied,
    RequestTimeout,
    RouteMissing,
    SendFailed,
    UsageError,
    WrongThread,
)

from .peer import Link, Peer, a_place, stored

SEND = Request.SEND_MESSAGE_V2


def run(test: Any) -> None:
    asyncio.run(test())


def sends(broker: Peer) -> list[Command]:
    return [command for command in broker.requests if command.code == SEND]


def properties(command: Command) -> dict[str, str]:
    return parse_properties((command.ext or {})["i"])


def test_a_send_carries_what_the_message_says() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker):
            async with Producer(names.address, group="PG") as producer:
                sent = await producer.send(
                    "T", b"body", tag="a", keys=["k1", "k2"], properties={"x": "y"}, flag=7
                )
            (command,) = sends(broker)
            ext = command.ext or {}
            assert (ext["a"], ext["b"], ext["h"], ext["m"], ext["n"]) == (
                "PG",
                "T",
                "7",
                "false",
                "b",
            )
            assert properties(command) == {
                "x": "y",
                "KEYS": "k1 k2",
                "TAGS": "a",
                "WAIT": "true",
                "UNIQ_KEY": sent.message_id,
            }
            assert command.body == b"body"
            assert sent.status is SendStatus.OK
            assert (sent.queue.topic, sent.queue.broker_name, sent.offset) == ("T", "b", 5)

    run(go)


def test_large_bodies_are_compressed_and_small_ones_are_not() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker):
            async with Producer(names.address, group="PG") as producer:
                await producer.send("T", b"x" * 4095)
                await producer.send("T", b"x" * 4096)
            plain, packed = sends(broker)
            assert (plain.ext or {})["f"] == "0"
            assert int((packed.ext or {})["f"]) == 0x301
            assert zlib.decompress(packed.body) == b"x" * 4096

    run(go)


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17, 204, 205])
def test_refusals_that_may_pass_are_tried_three_times(code: int) -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker):
            broker.answers[SEND] = lambda link, command: link.reply(command, code, remark="no")
            async with Producer(names.address, group="PG") as producer:
                with pytest.raises(Exception, match="no") as raised:
                    await producer.send("T", b"x")
            assert getattr(raised.value, "code", None) == code
            assert len(sends(broker)) == 3

    run(go)


def test_other_refusals_are_raised_at_once_under_their_names() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker):
            async with Producer(names.address, group="PG") as producer:
                broker.answers[SEND] = lambda link, command: link.reply(command, 13, remark="big")
                with pytest.raises(MessageRefused, match="big"):
                    await producer.send("T", b"x")
                acl = "org.apache.rocketmq.acl.common.AclException: signature"
                broker.answers[SEND] = lambda link, command: link.reply(command, 1, remark=acl)
                with pytest.raises(PermissionDenied, match="signature"):
                    await producer.send("T", b"x")
            assert len(sends(broker)) == 2

    run(go)


def test_a_second_attempt_may_succeed() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker):
            codes = [2, 1, 0]

            def answer(link: Link, command: Command) -> None:
                code = codes.pop(0)
                if code:
                    link.reply(command, code)
                else:
                    stored(link, command)

            broker.answers[SEND] = answer
            async with Producer(names.address, group="PG") as producer:
                assert (await producer.send("T", b"x")).status is SendStatus.OK
            keys = {properties(command)["UNIQ_KEY"] for command in sends(broker)}
            assert len(keys) == 1, "one message, one id, whatever the attempts"

    run(go)


def test_unsafe_storage_is_told_and_repeated_only_when_asked_for() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker):
            broker.answers[SEND] = lambda link, command: stored(link, command, code=10)
            async with Producer(names.address, group="PG") as producer:
                sent = await producer.send("T", b"x")
                assert sent.status is SendStatus.FLUSH_DISK_TIMEOUT
            assert len(sends(broker)) == 1
            async with Producer(names.address, group="PG", retries_unsafe=True) as producer:
                assert (await producer.send("T", b"x")).status is SendStatus.FLUSH_DISK_TIMEOUT
            assert len(sends(broker)) == 4

    run(go)


def test_a_mute_broker_uses_up_the_time_and_not_more() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker):
            broker.answers[SEND] = lambda link, command: None
            async with Producer(names.address, group="PG", timeout_ms=500) as producer:
                started = asyncio.get_running_loop().time()
                with pytest.raises(RequestTimeout, match=r"within 500 ms.*may be stored"):
                    await producer.send("T", b"x")
                assert asyncio.get_running_loop().time() - started < 5
            assert len(sends(broker)) == 1

    run(go)


def test_lost_connections_are_tried_again_and_then_told_one_by_one() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker):
            broker.answers[SEND] = lambda link, command: link.transport.abort()
            async with Producer(names.address, group="PG") as producer:
                with pytest.raises(SendFailed, match="3 attempts") as raised:
                    await producer.send("T", b"x")
            assert [name for name, _ in raised.value.attempts] == ["b"] * 3
            assert len(sends(broker)) == 3

    run(go)


def test_a_message_to_a_given_queue_or_key_is_tried_once() -> None:
    async def go() -> None:
        async with (
            a_place("T") as (names, broker),
            Producer(names.address, group="PG") as producer,
        ):
            first = await producer.send("T", b"x", order_key="k")
            for _ in range(5):
                again = await producer.send("T", b"x", order_key="k")
                assert again.queue == first.queue
            assert (await producer.send("T", b"x", queue=first.queue)).queue == first.queue
            assert properties(sends(broker)[0])["__SHARDINGKEY"] == "k"
            broker.answers[SEND] = lambda link, command: link.reply(command, 2)
            before = len(sends(broker))
            for how in ({"order_key": "k"}, {"queue": first.queue}):
                with pytest.raises(BrokerBusy):
                    await producer.send("T", b"x", **how)
            assert len(sends(broker)) == before + 2

    run(go)


def test_queues_are_used_in_turn() -> None:
    async def go() -> None:
        async with a_place("T") as (names, _broker):
            async with Producer(names.address, group="PG") as producer:
                found = [(await producer.send("T", b"x")).queue.queue_id for _ in range(6)]
            assert found in ([0, 1] * 3, [1, 0] * 3)

    run(go)


def test_a_batch_is_one_request_a_topic_and_key() -> None:
    async def go() -> None:
        async with a_place("T", "U") as (names, broker):
            async with Producer(names.address, group="PG") as producer:
                results = await producer.send_many(
                    [
                        Message("T", b"1", tag="a"),
                        Message("U", b"2"),
                        Message("T", b"3"),
                        Message("T", b"4", order_key="k"),
                    ]
                )
                with pytest.raises(InvalidMessage, match="message 1 has a delay"):
                    await producer.send_many([Message("T", b"1"), Message("T", b"2", delay=3)])
                assert await producer.send_many([]) == []
            batches = [
                command for command in broker.requests if command.code == Request.SEND_BATCH_MESSAGE
            ]
            bodies = [[body for _, body, _ in decode_batch(each.body)] for each in batches]
            assert bodies == [[b"1", b"3"], [b"4"], [b"2"]] or bodies == [
                [b"1", b"3"],
                [b"2"],
                [b"4"],
            ]
            keys = [
                decode_properties(encoded)["UNIQ_KEY"]
                for each in batches
                for _, _, encoded in decode_batch(each.body)
            ]
            assert sorted(keys) == sorted(result.message_id for result in results)
            assert [result.offset for result in results] == [5, 5, 6, 5]
            assert all((each.ext or {})["m"] == "true" for each in batches)
            # A key here would stand in for the messages' own at RocketMQ's brokers.
            assert all(properties(each) == {"WAIT": "true"} for each in batches)

    run(go)


def test_a_batch_beyond_the_limit_goes_in_parts() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker):
            async with Producer(names.address, group="PG", body_size_max=10_000) as producer:
                await producer.send_many([Message("T", b"x" * 4000) for _ in range(5)])
            sizes = [len(c.body) for c in broker.requests if c.code == Request.SEND_BATCH_MESSAGE]
            assert len(sizes) == 3
            assert max(sizes) <= 10_000

    run(go)


def test_delays_become_the_properties_that_brokers_know() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker):
            async with Producer(names.address, group="PG") as producer:
                await producer.send("T", b"x", delay_level=3)
                await producer.send("T", b"x", delay=1.5)
                await producer.send("T", b"x", delay=dt.timedelta(seconds=2))
                at = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
                await producer.send("T", b"x", deliver_at=at)
            told = [properties(command) for command in sends(broker)]
            assert told[0]["DELAY"] == "3"
            assert told[1]["TIMER_DELAY_MS"] == "1500"
            assert told[2]["TIMER_DELAY_MS"] == "2000"
            assert told[3]["TIMER_DELIVER_MS"] == "1893456000000"

    run(go)


def test_too_many_under_way_wait_and_wait_no_longer_than_their_time() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker):
            held: list[tuple[Link, Command]] = []
            broker.answers[SEND] = lambda link, command: held.append((link, command))
            async with Producer(names.address, group="PG", inflight_max=2) as producer:
                first = [asyncio.ensure_future(producer.send("T", b"x")) for _ in range(2)]
                await broker.until(lambda: len(held) == 2)
                third = asyncio.ensure_future(producer.send("T", b"x"))
                with pytest.raises(RequestTimeout, match="no attempt"):
                    await producer.send("T", b"x", timeout_ms=50)
                assert len(held) == 2
                stored(*held[0])
                await broker.until(lambda: len(held) == 3)
                for link, command in held[1:]:
                    stored(link, command)
                await asyncio.gather(*first, third)

    run(go)


def test_one_way_messages_leave_without_an_answer() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker):
            async with Producer(names.address, group="PG") as producer:
                message_id = await producer.send_one_way("T", b"x")
                await broker.until(lambda: sends(broker))
            (command,) = sends(broker)
            assert command.flag & 2
            assert properties(command)["UNIQ_KEY"] == message_id

    run(go)


def test_what_cannot_be_sent_is_refused_before_the_wire() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker):
            async with Producer(names.address, group="PG", body_size_max=100) as producer:
                for topic, body, fields in (
                    ("", b"x", {}),
                    ("T T", b"x", {}),
                    ("T" * 128, b"x", {}),
                    ("RMQ_SYS_TRANS_HALF_TOPIC", b"x", {}),
                    ("T", b"", {}),
                    ("T", "text", {}),
                    ("T", b"x" * 101, {}),
                    ("T", b"x", {"keys": ["a b"]}),
                    ("T", b"x", {"properties": {"UNIQ_KEY": "1"}}),
                    ("T", b"x", {"properties": {"a": ""}}),
                    ("T", b"x", {"properties": {"a": "b\x02c"}}),
                    ("T", b"x", {"properties": {"a": "b" * 40_000}}),
                    ("T", b"x", {"delay_level": 19}),
                    ("T", b"x", {"delay_level": 1, "delay": 2}),
                    ("T", b"x", {"delay": -1}),
                    ("T", b"x", {"deliver_at": dt.datetime(2030, 1, 1)}),  # noqa: DTZ001
                ):
                    with pytest.raises(InvalidMessage):
                        await producer.send(topic, body, **fields)  # type: ignore[arg-type]
                with pytest.raises(UsageError, match="either"):
                    await producer.send(Message("T", b"x"), b"y")
            assert not sends(broker)

    run(go)


def test_nobody_to_send_to_is_told_apart() -> None:
    async def go() -> None:
        async with (
            a_place("T") as (names, _broker),
            Producer(names.address, group="PG") as producer,
        ):
            with pytest.raises(RouteMissing, match="create it first"):
                await producer.send("U", b"x")
            names.close()
            with pytest.raises(NoNameServer):
                await producer.send("V", b"x")

    run(go)


def test_use_before_open_after_close_and_on_another_loop_is_refused() -> None:
    async def go() -> None:
        async with a_place("T") as (names, _broker):
            producer = Producer(names.address, group="PG")
            with pytest.raises(ClientClosed, match="not open"):
                await producer.send("T", b"x")
            await producer.open()
            await producer.open()

            async def elsewhere() -> None:
                await producer.send("T", b"x")

            with pytest.raises(WrongThread):
                await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
            await producer.close()
            await producer.close()
            with pytest.raises(ClientClosed, match="closed"):
                await producer.send("T", b"x")
            with pytest.raises(ClientClosed):
                await producer.open()

    run(go)


def test_namespaces_wrap_names_on_the_wire_only() -> None:
    async def go() -> None:
        async with a_place("ns%T") as (names, broker):
            async with Producer(names.address, group="PG", namespace="ns") as producer:
                sent = await producer.send("T", b"x")
            (command,) = sends(broker)
            assert ((command.ext or {})["a"], (command.ext or {})["b"]) == ("ns%PG", "ns%T")
            assert properties(command)["INSTANCE_ID"] == "ns"
            assert sent.queue.topic == "T"

    run(go)


def test_interceptors_see_every_message_and_what_they_raise_harms_nobody() -> None:
    class Seen(Interceptor):
        def __init__(self) -> None:
            self.told: list[tuple[str, object]] = []

        def before_send(self, message: Message) -> None:
            message.properties["trace"] = "1"

        def after_send(
            self, message: Message, result: SendResult | None, error: BaseException | None
        ) -> None:
            self.told.append((message.topic, result or error))
            raise ValueError("planted")

    async def go() -> None:
        async with a_place("T") as (names, broker):
            seen = Seen()
            given = Message("T", b"x")
            async with Producer(names.address, group="PG", interceptors=[seen]) as producer:
                sent = await producer.send(given)
                await producer.send_many([Message("T", b"y")])
                broker.answers[SEND] = lambda link, command: link.reply(command, 13)
                with pytest.raises(MessageRefused):
                    await producer.send("T", b"z")
            assert properties(sends(broker)[0])["trace"] == "1"
            assert seen.told[0] == ("T", sent)
            assert isinstance(seen.told[2][1], MessageRefused)

    run(go)


def test_two_producers_can_share_one_instance() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker):
            instance = ClientInstance(parse_client_options(names.address, {}))
            await instance.open()
            one = await Producer(group="A", instance=instance).open()
            two = await Producer(group="B", instance=instance).open()
            await one.send("T", b"x")
            await one.close()
            await two.send("T", b"x")
            assert [(command.ext or {})["a"] for command in sends(broker)] == ["A", "B"]
            await two.close()
            assert not instance.is_closed
            await instance.close()

    run(go)


def test_settings_that_cannot_be_are_named() -> None:
    for settings, word in (
        ({"timeout_ms": 0}, "timeout_ms=0"),
        ({"retries": -1}, "retries=-1"),
        ({"compression": "rar"}, "rar"),
        ({"topics": "T"}, "list of names"),
        ({"nonsense": 1}, "nonsense"),
    ):
        with pytest.raises(UsageError, match=word):
            Producer("a:1", group="PG", **settings)
    for group in ("", "a b", "DEFAULT_PRODUCER", "g" * 256):
        with pytest.raises(InvalidMessage):
            Producer("a:1", group=group)


def test_a_name_server_that_is_mute_does_not_hold_a_send_beyond_its_time() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker):
            names.answers[Request.GET_ROUTEINFO_BY_TOPIC] = lambda link, command: None
            async with Producer(names.address, group="PG", timeout_ms=50) as producer:
                loop = asyncio.get_running_loop()
                started = loop.time()
                for key in ("", "k"):
                    with pytest.raises(RequestTimeout, match=r"within 50 ms.*was not sent"):
                        await producer.send("T", b"x", order_key=key)
                with pytest.raises(RequestTimeout, match="was not sent"):
                    await producer.send_many([Message("T", b"x", order_key="k")])
                assert loop.time() - started < 2, "a name server's own time is 3 s"
            assert not sends(broker)

    run(go)


def test_the_first_message_of_all_may_name_its_queue() -> None:
    async def go() -> None:
        queue = MessageQueue("T", "b", 1)
        async with (
            a_place("T") as (names, _),
            Producer(names.address, group="PG") as producer,
        ):
            assert (await producer.send("T", b"x", queue=queue)).queue == queue

    run(go)
