"""The message trace on the side: what is written where, what is dropped; nobody suffers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from escrowmq.aio import Message, Outcome, Producer
from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.client import tracing
from escrowmq.client.tracing import trace_topic
from escrowmq.codec.properties import parse_properties
from escrowmq.errors import InvalidMessage, UsageError

from .peer import DEADLINE_S, Link, Peer, a_place, stored

TOPIC = "RMQ_SYS_TRACE_TOPIC"


def run(test: Any) -> None:
    asyncio.run(asyncio.wait_for(test(), 2 * DEADLINE_S))


def sends(broker: Peer, topic: str) -> list[Command]:
    return [
        command
        for command in broker.requests
        if command.code == Request.SEND_MESSAGE_V2 and (command.ext or {})["b"] == topic
    ]


def records(broker: Peer, topic: str = TOPIC) -> list[list[str]]:
    text = "".join(command.body.decode() for command in sends(broker, topic))
    return [record.split("\x01") for record in text.split("\x02") if record]


def test_a_send_and_the_end_of_a_transaction_are_written_and_found_by_id_and_key() -> None:
    async def go() -> None:
        async with a_place("T", TOPIC) as (names, broker):
            async with Producer(names.address, group="PG", trace=True) as producer:
                sent = await producer.send("T", b"x", keys=["k"])
                async with producer.transaction("T", b"y") as tx:
                    pass
            pub, half, end = records(broker)
            assert (pub[0], pub[3:6], pub[7]) == ("Pub", ["PG", "T", sent.message_id], "k")
            assert (pub[8], pub[9], pub[11], pub[13]) == (broker.address, "1", "0", "true")
            assert (half[0], half[11]) == ("Pub", "1")
            assert (end[0], end[5]) == ("EndTransaction", tx.results[0].message_id)
            assert end[10:] == [tx.results[0].message_id, "COMMIT_MESSAGE", "false"]
            (message,) = sends(broker, TOPIC)
            ext = message.ext or {}
            keys = parse_properties(ext["i"])["KEYS"].split()
            assert keys == [sent.message_id, "k", tx.results[0].message_id]
            assert ext["a"] == "_INNER_TRACE_PRODUCER-PG-PRODUCE"

    run(go)


def test_every_message_of_a_batch_has_its_record() -> None:
    async def go() -> None:
        async with a_place("T", "own-trace") as (names, broker):
            async with Producer(names.address, group="PG", trace="own-trace") as producer:
                sent = await producer.send_many([Message("T", b"1"), Message("T", b"2")])
            found = records(broker, "own-trace")
            assert [record[5] for record in found] == [each.message_id for each in sent]

    run(go)


def test_a_broker_that_wants_no_trace_gets_none() -> None:
    def answer(link: Link, command: Command) -> None:
        ext = command.ext or {}
        told = {"msgId": "7F00000100002A9F0000000000000005", "queueId": ext["e"]}
        link.reply(command, ext={**told, "queueOffset": "5", "TRACE_ON": "false"})

    async def go() -> None:
        async with a_place("T", TOPIC) as (names, broker):
            broker.answers[Request.SEND_MESSAGE_V2] = answer
            async with Producer(names.address, group="PG", trace=True) as producer:
                await producer.send("T", b"x")
                await producer.send(TOPIC, b"a trace is not traced")
            assert len(sends(broker, TOPIC)) == 1

    run(go)


def test_a_missing_trace_topic_costs_the_trace_and_not_the_send(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def go() -> None:
        async with a_place("T") as (names, _):
            producer = Producer(names.address, group="PG", trace=True)
            async with producer:
                await producer.send("T", b"x")
            assert producer.dispatch.interceptor_calls.tracer is not None
            assert producer.dispatch.interceptor_calls.tracer.dropped_count == 1
            assert "1 records of the trace are dropped" in caplog.text

    run(go)


def test_what_is_too_much_is_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        monkeypatch.setattr(tracing, "WAITING_MAX", 3)
        async with a_place("T", TOPIC) as (names, broker):
            async with Producer(names.address, group="PG", trace=True) as producer:
                for _ in range(5):
                    await producer.send("T", b"x")
                tracer = producer.dispatch.interceptor_calls.tracer
            assert tracer is not None
            assert (len(records(broker)), tracer.dropped_count) == (3, 2)

    run(go)


def test_many_records_do_not_wait_for_the_time_to_collect(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        monkeypatch.setattr(tracing, "_FULL_COUNT", 2)
        monkeypatch.setattr(tracing, "_COLLECT_S", 1_000.0)
        async with (
            a_place("T", TOPIC) as (names, broker),
            Producer(names.address, group="PG", trace=True) as producer,
        ):
            await producer.send("T", b"x")
            await producer.send("T", b"x")
            await broker.until(lambda: len(records(broker)) == 2)

    run(go)


def test_the_end_does_not_wait_for_a_broker_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        monkeypatch.setattr(tracing, "_LAST_S", 0.05)
        async with a_place("T", TOPIC) as (names, broker):

            def answer(link: Link, command: Command) -> None:
                if (command.ext or {})["b"] == "T":
                    stored(link, command)

            broker.answers[Request.SEND_MESSAGE_V2] = answer
            async with Producer(names.address, group="PG", trace=True) as producer:
                await producer.send("T", b"x")
                tracer = producer.dispatch.interceptor_calls.tracer
            assert tracer is not None
            assert tracer.dropped_count == 1

    run(go)


def test_an_end_that_is_not_confirmed_is_not_written() -> None:
    async def go() -> None:
        async with a_place("T", TOPIC) as (names, broker):
            broker.answers[Request.END_TRANSACTION] = lambda link, command: link.reply(command, 1)
            settings: Any = {"trace": True, "confirms_commits": False}
            async with Producer(names.address, group="PG", **settings) as producer:
                async with producer.transaction("T", b"x"):
                    pass
                tx = producer.transaction("T", b"y")
                await tx.begin()
                await tx.settle(Outcome.UNKNOWN)
            kinds = [(record[0], record[-2]) for record in records(broker)]
            assert [kind for kind, _ in kinds] == ["Pub", "Pub", "EndTransaction"]
            assert kinds[-1][1] == "UNKNOW"

    run(go)


def test_the_setting_names_a_topic() -> None:
    assert trace_topic(True) == TOPIC
    assert trace_topic(False) == ""
    assert trace_topic("mine") == "mine"
    with pytest.raises(InvalidMessage):
        trace_topic("no topic!")
    with pytest.raises(UsageError, match="trace=3"):
        trace_topic(3)
