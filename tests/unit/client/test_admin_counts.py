"""Counts and checks of pending transactions that a broker answers in parts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec

from escrowmq.aio import Admin
from escrowmq.base.codes import Request
from escrowmq.base.command import Command

from .peer import DEADLINE_S, Link, Peer, a_peer

PARTS: dict[int, dict[str, Any]] = {
    -1: {
        "count": 2,
        "parked": 1,
        "oldestMs": 9,
        "byTopic": {"T": 2},
        "byGroup": {"G": 2},
        "next": 7,
    },
    7: {"count": 0, "parked": 0, "oldestMs": -1, "byTopic": {}, "byGroup": {}, "next": 12},
    12: {"count": 3, "parked": 0, "oldestMs": 5, "byTopic": {"T": 1, "U": 2}, "byGroup": {"G": 3}},
}


def answer(link: Link, command: Command) -> None:
    asked = msgspec.json.decode(command.body)
    assert asked["topic"] == "T"
    link.reply(command, body=msgspec.json.encode(PARTS[asked.get("after", -1)]))


@asynccontextmanager
async def an_admin(broker: Peer, names: Peer | None = None) -> AsyncIterator[Admin]:
    brokers = {"b": {"brokerName": "b", "cluster": "c", "brokerAddrs": {"0": broker.address}}}
    info = {"brokerAddrTable": brokers, "clusterAddrTable": {"c": ["b"]}}

    def tell(link: Link, command: Command) -> None:
        link.reply(command, body=msgspec.json.encode(info))

    async with AsyncExitStack() as stack:
        place: Peer = names if names is not None else await stack.enter_async_context(a_peer())
        place.answers[Request.GET_BROKER_CLUSTER_INFO] = tell
        yield await stack.enter_async_context(Admin(place.address))


def test_parts_are_asked_for_until_the_end_and_added_up() -> None:
    async def go() -> None:
        async with a_peer() as broker, an_admin(broker) as admin:
            broker.answers[Request.ESCROW_PENDING_COUNT] = answer
            found = await admin.transactions.count(topic="T")
            assert (found.count, found.parked, found.oldest_ms) == (5, 1, 5)
            assert (found.by_topic, found.by_group) == ({"T": 3, "U": 2}, {"G": 5})
            broker.answers[Request.ESCROW_CHECK] = answer
            assert await admin.transactions.check(topic="T") == 5

    asyncio.run(asyncio.wait_for(go(), DEADLINE_S))
