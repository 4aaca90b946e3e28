"""A subscriber whose messages are taken by hand."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("faststream")

from escrowmq.integrations.faststream import EscrowMQBroker, subscribing


class Slow:
    """A consumer whose opening takes a while."""

    made: list[Slow]
    may_open: asyncio.Event

    def __init__(self, *given: Any, **settings: Any) -> None:
        self.is_open = False
        self.is_closed = False
        self.made.append(self)

    async def open(self) -> None:
        await self.may_open.wait()
        self.is_open = True

    async def close(self) -> None:
        self.is_closed = True

    async def receive(self, count: int, *, timeout_s: float) -> list[Any]:
        assert self.is_open
        return []


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Slow]:
    monkeypatch.setattr(Slow, "made", [], raising=False)
    monkeypatch.setattr(subscribing, "Consumer", Slow)
    return Slow.made


def test_those_who_ask_at_once_share_a_consumer_that_is_open(made: list[Slow]) -> None:
    """The second was given it before it was, and heard that the client is closed."""

    async def go() -> None:
        Slow.may_open = asyncio.Event()
        subscriber = EscrowMQBroker("127.0.0.1:1").subscriber("T", "g")
        asking = [asyncio.create_task(subscriber.get_one()) for _ in range(2)]
        await asyncio.sleep(0)
        Slow.may_open.set()
        assert await asyncio.gather(*asking) == [None, None]
        assert len(made) == 1
        await subscriber.stop()
        assert made[0].is_closed

    asyncio.run(go())


def test_a_consumer_whose_opening_was_cancelled_is_made_anew(made: list[Slow]) -> None:
    """It was kept as it was, and whoever asked later heard that the client is closed."""

    async def go() -> None:
        Slow.may_open = asyncio.Event()
        subscriber = EscrowMQBroker("127.0.0.1:1").subscriber("T", "g")
        asking = asyncio.create_task(subscriber.get_one())
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert made[0].is_closed
        Slow.may_open.set()
        assert await subscriber.get_one() is None
        await subscriber.stop()

    asyncio.run(go())
