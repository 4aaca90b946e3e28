"""The SDK before bodies that are small on the wire and large in memory, and odd replies."""

from __future__ import annotations

import asyncio
import time
import zlib
from typing import Any

import pytest

from escrowmq.aio import Consumer
from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.base.message import StoredMessage
from escrowmq.client.admin import messages as admin_messages
from escrowmq.client.core.reply_numbers import parse_number_field
from escrowmq.client.core.routes import MessageQueue
from escrowmq.codec.record import encode_message
from escrowmq.errors import RemoteProtocolError

from .peer import Link, a_peer
from .test_admin_counts import an_admin
from .test_consumer import QUICK, a_script, record
from .test_pop_consumer import POP, give

SIZE = 1_000_000
BOMB = zlib.compress(bytes(SIZE), 9)


def bomb(queue_offset: int) -> bytes:
    message = StoredMessage(
        topic="T", body=BOMB, queue_id=0, queue_offset=queue_offset, log_offset=1000 + queue_offset,
        stored_ms=1, record_size=0, sys_flag=0x301, properties={"KEYS": "k"},
    )  # fmt: skip
    return encode_message(message)


def run(test: Any) -> None:
    asyncio.run(test())


def test_a_pull_unpacks_no_more_than_there_is_room_for_and_loses_nothing() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            for at in range(20):
                script.records[at] = b"".join(bomb(n) for n in range(at, 20))
            options = QUICK | {"prefetch_size_max": 3 * SIZE}
            async with Consumer(names, group="g", topic="T", **options) as consumer:
                for at in range(20):
                    (message,) = await consumer.receive(1)
                    assert (message.queue_offset, len(message.body)) == (at, SIZE)
                    (reader,) = (
                        reader for queue, reader in consumer._state.readers.items()
                        if queue.topic == "T"
                    )  # fmt: skip
                    assert reader.fetched.size <= 3 * SIZE
                    await message.ack()

    run(go)


def test_what_is_popped_is_unpacked_when_it_is_taken_and_not_all_at_once() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            give(script, *(bomb(n) for n in range(20)))
            options = POP | {"prefetch_size_max": 3 * SIZE}
            async with Consumer(names, group="g", topic="T", **options) as consumer:
                seen: list[int] = []
                while len(seen) < 20:
                    found = await consumer.receive(20)
                    assert len(found) <= 3
                    for message in found:
                        assert len(message.body) == SIZE
                        seen.append(message.queue_offset)
                        await message.ack()
                assert seen == list(range(20))

    run(go)


def test_what_an_operator_looks_at_is_unpacked_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(admin_messages, "UNPACKED_SIZE_MAX", 2 * SIZE)

    def pull(link: Link, command: Command) -> None:
        link.reply(command, body=b"".join(bomb(n) for n in range(20)))

    async def go() -> None:
        async with a_peer() as names, a_peer() as broker, an_admin(broker, names) as admin:
            names.be_name_server(broker.address, topics=("T",), queues_count=1)
            broker.answers[Request.PULL_MESSAGE] = pull
            found = await admin.messages.at(MessageQueue("T", "b", 0), 0, count_max=20)
            assert [message.queue_offset for message in found] == [0, 1]
            assert "18 of 20 messages of b are left out" in caplog.text

    run(go)


@pytest.mark.parametrize("text", ["", "x", "-2", "1.5", "9" * 5000, "9223372036854775808", "٣"])
def test_what_is_no_number_in_a_reply_is_told(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="a number up to"):
        parse_number_field(Command(code=0, ext={"offset": text}), "offset")


def test_numbers_of_replies() -> None:
    reply = Command(code=0, ext={"offset": "-1", "most": str((1 << 63) - 1)})
    assert parse_number_field(reply, "offset") == -1
    assert parse_number_field(reply, "most") == (1 << 63) - 1
    assert parse_number_field(reply, "absent", otherwise=7) == 7
    with pytest.raises(RemoteProtocolError, match="nothing"):
        parse_number_field(reply, "absent")


@pytest.mark.parametrize("text", ["", "x", "9" * 5000])
def test_a_pull_with_odd_numbers_is_tried_again(text: str) -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            good = script.pull
            left = [text]

            def pull(link: Link, command: Command) -> None:
                if (command.ext or {})["topic"] == "T" and left:
                    link.reply(command, ext={"nextBeginOffset": left.pop()}, body=record(0))
                else:
                    good(link, command)

            script.broker.answers[Request.PULL_MESSAGE] = pull
            script.records[0] = record(0)
            async with Consumer(names, group="g", topic="T", **QUICK) as consumer:
                (message,) = await consumer.receive(1)
                assert message.queue_offset == 0

    run(go)


def test_a_broker_that_says_again_and_again_where_to_go_on_is_asked_more_seldom(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            script.records[0] = record(0)
            script.codes = [(Response.PULL_OFFSET_MOVED, 0)] * 5
            began_s = time.monotonic()  # a consumer asks before it is handed over
            async with Consumer(names, group="g", topic="T", **QUICK) as consumer:
                (message,) = await consumer.receive(1)
                assert time.monotonic() - began_s >= 1.0  # after the fourth, and the fifth
                await message.ack()

    run(go)
    said = [line for line in caplog.messages if "continues at offset" in line]
    assert len(said) == 1


def test_a_broker_that_says_at_once_that_nothing_is_there_is_not_asked_without_a_pause() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            script.codes = [(Response.PULL_NOT_FOUND, 0)] * 12
            script.records[0] = record(0)
            began_s = time.monotonic()  # a consumer asks before it is handed over
            async with Consumer(names, group="g", topic="T", **QUICK) as consumer:
                (message,) = await consumer.receive(1)
                assert time.monotonic() - began_s >= 1.0  # after the eleventh, and the twelfth
                await message.ack()

    run(go)


def test_a_broker_that_pops_nothing_at_once_is_not_asked_without_a_pause() -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            asked = 0
            broker = script.broker

            def nothing(link: Link, command: Command) -> None:
                nonlocal asked
                asked += 1
                link.reply(command, code=Response.POLLING_TIMEOUT)
                if asked == 12:
                    give(script, record(0))

            broker.answers[Request.POP_MESSAGE] = nothing
            began_s = time.monotonic()  # a consumer asks before it is handed over
            async with Consumer(names, group="g", topic="T", **POP) as consumer:
                (message,) = await consumer.receive(1)
                assert time.monotonic() - began_s >= 1.0
                await message.ack()

    run(go)
