"""A producer that asks how safe its messages are, and a real broker."""

from __future__ import annotations

import asyncio
from typing import Any

from escrowmq.aio import Producer
from escrowmq.testing import Broker


def test_a_producer_that_asks_learns_how_safe_its_messages_are() -> None:
    with Broker() as broker:

        async def go() -> None:
            options: Any = {"asks_safety": True, "linger_ms": 5}
            async with Producer(broker.nameserver, group="PG", **options) as producer:
                sent = await producer.send("T", b"one")
                assert (sent.durability, sent.copies) == ("disk", 1)
                for one in await asyncio.gather(*(producer.send("T", b"many") for _ in range(5))):
                    assert (one.durability, one.copies) == ("disk", 1)
            async with Producer(broker.nameserver, group="PG") as producer:
                sent = await producer.send("T", b"one")
                assert (sent.durability, sent.copies) == ("", 0)

        asyncio.run(go())
