"""None for a field that a message does not have, which programs pass."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from escrowmq.aio import Interceptor, Message, Outcome, Producer
from escrowmq.base.codes import Request
from escrowmq.codec.properties import parse_properties

from .peer import a_place

ALL: dict[str, Any] = dict.fromkeys(("tag", "keys", "properties", "order_key"))
WORDS = {"tag": "TAGS", "keys": "KEYS", "properties": "mine", "order_key": "__SHARDINGKEY"}
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {}, "traced": {"trace": "traces"}, "lingering": {"linger_ms": 1},
    "intercepted": {"interceptors": [Interceptor()]},
}  # fmt: skip


async def in_transaction(producer: Producer, fields: dict[str, Any]) -> None:
    tx = await producer.transaction("T", b"x", **fields).begin()
    await tx.settle(Outcome.COMMIT)


CALLS: dict[str, Callable[[Producer, dict[str, Any]], Awaitable[object]]] = {
    "alone": lambda producer, fields: producer.send("T", b"x", **fields),
    "delayed": lambda producer, fields: producer.send("T", b"x", delay=1, **fields),
    "many": lambda producer, fields: producer.send_many([Message("T", b"x", **fields)] * 2),
    "one way": lambda producer, fields: producer.send_one_way("T", b"x", **fields),
    "in a transaction": in_transaction,
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("names", [*((name,) for name in ALL), tuple(ALL)])
def test_none_is_taken_for_what_a_message_does_not_have(
    settings: dict[str, Any],
    call: Callable[[Producer, dict[str, Any]], Awaitable[object]],
    names: tuple[str, ...],
) -> None:
    """Sent alone it was. With other messages, a tag, a delay, an interceptor or a trace it raised
    TypeError; with a trace although the message was stored."""
    others = {"tag": "a", "keys": ["k"], "properties": {"mine": "1"}, "order_key": "o"}

    async def go() -> None:
        async with (
            a_place("T", "traces") as (names_server, broker),
            Producer(names_server.address, group="PG", compression="", **settings) as producer,
        ):
            await call(producer, {**others, **dict.fromkeys(names)})
            await producer.flush()
            await broker.until(lambda: any(is_send(code) for code in broker.codes()))
            sent = next(each for each in broker.requests if is_send(each.code))
        found = parse_properties((sent.ext or {})["i"])
        if sent.code == Request.SEND_MESSAGE_V2:
            words = {
                "tag": "TAGS",
                "keys": "KEYS",
                "properties": "mine",
                "order_key": "__SHARDINGKEY",
            }
            assert {name for name, word in words.items() if word in found} == ALL.keys() - {*names}

    asyncio.run(go())


def is_send(code: int) -> bool:
    return code in (Request.SEND_MESSAGE_V2, Request.SEND_BATCH_MESSAGE)
