"""Messages one by one, for `async for`, and what both faces' iterations have in hand."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from escrowmq.client.core.backoff import BROKER_DECIDES
from escrowmq.client.delivery import Delivery, Held

if TYPE_CHECKING:
    from escrowmq.client.consumer import Consumer
    from escrowmq.client.reading import Reading


class Slot:
    """What an iteration has in hand. A message lies in it from the moment in which it is taken from
    its queue, so that no interrupt on its way to the loop's body can lose it."""

    __slots__ = ("arrived", "handed")

    def __init__(self) -> None:
        self.arrived: Held | None = None
        """Taken, and not handed over yet."""
        self.handed: Held | None = None
        """Handed over, and not settled yet."""


class Hands:
    """The slots of one consumer's iterations."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._slots: dict[int, Slot] = {}
        self._left: list[Slot] = []

    async def empty(self, slot: Slot) -> None:
        """Acknowledge what an iteration handed over before; what other iterations held when they
        were left comes again."""
        if slot.handed is not None:
            await self._reading.settle(slot.handed, None)
            slot.handed = None
        self._slots.pop(id(slot), None)
        while self._left:
            left = self._left.pop()
            self._untake(left)
            if self._slots.pop(id(left), None) is not None and left.handed is not None:
                await self._reading.settle(left.handed, BROKER_DECIDES)

    def fill(self, slot: Slot, message: Held) -> None:
        """An iteration's next message."""
        slot.arrived = message
        self._slots[id(slot)] = slot

    def leave(self, slot: Slot) -> None:
        """An iteration ended, perhaps by an exception: when another one begins, what it handed
        over last is to come again. Callable from any thread."""
        if slot.arrived is not None or slot.handed is not None:
            self._left.append(slot)

    async def settle(self, level: int | None) -> None:
        """Settle what was handed over last; what reached nobody waits again."""
        slots, self._slots, self._left = self._slots, {}, []
        for slot in slots.values():
            self._untake(slot)
            if slot.handed is not None:
                await self._reading.settle(slot.handed, level)

    def _untake(self, slot: Slot) -> None:
        if slot.arrived is not None:
            self._reading.untake(slot.arrived)
            slot.arrived = None


class Iteration:
    """Acknowledges each message when the next one is asked for.

    A consumer that was not opened is opened by its first iteration and closed at its end, so that
    `async for message in Consumer(...)` is enough. A loop that is left tells nobody why: what it
    held last comes again then, unless it was acknowledged, or the consumer's own block ends
    without an exception."""

    def __init__(self, consumer: Consumer, *, is_owner: bool) -> None:
        self._consumer = consumer
        self._is_owner = is_owner
        self._slot = Slot()
        self._loop: asyncio.AbstractEventLoop | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            await self._consumer.open()
        slot = self._slot
        if slot.arrived is None and not await self._consumer.advance(slot):
            self._is_owner = False
            raise StopAsyncIteration
        message, slot.arrived = slot.arrived, None
        assert isinstance(message, Delivery)
        slot.handed = message
        return message

    def __del__(self) -> None:
        loop = self._loop
        self._consumer.hands.leave(self._slot)
        if self._is_owner and loop is not None and not loop.is_closed():
            consumer = self._consumer
            loop.call_soon_threadsafe(lambda: loop.create_task(consumer.close()))
