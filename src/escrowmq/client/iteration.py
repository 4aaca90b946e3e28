"""Messages one by one, for `async for`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from escrowmq.client.delivery import Delivery

if TYPE_CHECKING:
    from escrowmq.client.consumer import Consumer


class Iteration:
    """Acknowledges each message when the next one is asked for.

    A consumer that was not opened is opened by its first iteration and closed at its end, so that
    `async for message in Consumer(...)` is enough. A loop that is left tells nobody why: what it
    held last comes again then, unless it was acknowledged, or the consumer's own block ends
    without an exception."""

    def __init__(self, consumer: Consumer, *, is_owner: bool) -> None:
        self._consumer = consumer
        self._is_owner = is_owner
        self._previous: Delivery | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            await self._consumer.open()
        message = await self._consumer.advance(self._previous)
        self._previous = None
        if message is None:
            self._is_owner = False
            raise StopAsyncIteration
        assert isinstance(message, Delivery)
        self._previous = message
        return message

    def __del__(self) -> None:
        loop = self._loop
        if self._previous is not None:
            self._consumer.leave(self._previous)
        if self._is_owner and loop is not None and not loop.is_closed():
            consumer = self._consumer
            loop.call_soon_threadsafe(lambda: loop.create_task(consumer.close()))
