"""Iteration over messages or batches with `async for`. The part that keeps track of the messages of
an iteration also serves the blocking classes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol, Self

from escrowmq.client.core.redelivery import BROKER_DECIDES
from escrowmq.client.delivery import Delivery, HeldMessage, MessageHold
from escrowmq.errors import EscrowMQError, UsageError

if TYPE_CHECKING:
    from escrowmq.client.consumer_state import ConsumerState


WITHIN_MAX_S: Final = 3_600.0


class IterationSlot:
    """The messages that an iteration holds. They are put here in the moment when they are taken
    from their queues, so that an interrupt on the way to the loop's body loses none."""

    __slots__ = ("arrived", "handed", "holds")

    def __init__(self) -> None:
        self.arrived: list[HeldMessage] = []
        """Messages taken but not delivered to the loop yet."""
        self.handed: list[HeldMessage] = []
        """Messages delivered together, which may not be settled yet."""
        self.holds: list[MessageHold] = []
        """The holds that keep these messages from other members."""

    def deliver_arrived(self) -> list[HeldMessage]:
        """Deliver the messages that have arrived, and return them."""
        self.handed, self.arrived = self.arrived, []
        return self.handed

    def end_holds(self) -> None:
        """End the holds, because the messages are about to be settled."""
        holds, self.holds = self.holds, []
        for hold in holds:
            hold.end()


class IterationSlots:
    """The messages that the iterations of one consumer hold: one `IterationSlot` for each
    iteration."""

    def __init__(self, reading: ConsumerState) -> None:
        self._state = reading
        self._slots: dict[int, IterationSlot] = {}
        self._left: list[IterationSlot] = []

    async def acknowledge_delivered(self, slot: IterationSlot) -> None:
        """Acknowledge the messages that this iteration delivered before. Messages that iterations
        still held when they ended are redelivered."""
        slot.end_holds()
        if slot.handed:
            await self._state.settle_batch(slot.handed, None)
            slot.handed = []
        self._slots.pop(id(slot), None)
        while self._left:
            left = self._left.pop()
            left.end_holds()
            self._put_back(left)
            if self._slots.pop(id(left), None) is not None and left.handed:
                await self._state.settle_batch(left.handed, BROKER_DECIDES)

    async def fetch_next(self, slot: IterationSlot, count_max: int, *, within_s: float) -> None:
        """Fetch an iteration's next messages into `slot`: up to `count_max`, or those that arrive
        until `within_s` after the first. Raises ClientClosed when the consumer is closed. An
        orderly queue hands out no more messages until the last ones are settled; this does not wait
        for that."""
        reading = self._state
        found = await reading.take(count_max)
        slot.arrived.extend(found)
        slot.holds.append(reading.hold(found))
        self._slots[id(slot)] = slot
        now = reading.instance.now
        until = now() + (0.0 if reading.options.is_orderly else within_s)
        while slot.arrived and len(slot.arrived) < count_max and (left_s := until - now()) > 0:
            try:
                more = await reading.take(count_max - len(slot.arrived), timeout_s=left_s)
            except EscrowMQError:
                return  # the next batch raises it again
            if not more:
                return
            slot.arrived.extend(more)
            slot.holds.append(reading.hold(more))

    def end_iteration(self, slot: IterationSlot) -> None:
        """End an iteration, perhaps after an exception: its last messages are redelivered when
        another iteration begins. Callable from any thread."""
        for hold in slot.holds:
            hold.end_threadsafe()
        if slot.arrived or slot.handed:
            self._left.append(slot)

    async def settle_all(self, level: int | None) -> None:
        """Settle the last delivered messages; put back those that reached no caller."""
        slots, self._slots, self._left = self._slots, {}, []
        for slot in slots.values():
            slot.end_holds()
            self._put_back(slot)
            if slot.handed:
                await self._state.settle_batch(slot.handed, level)

    def _put_back(self, slot: IterationSlot) -> None:
        # The thread of a blocking loop may take them in this moment: they then come twice.
        arrived, slot.arrived = slot.arrived, []
        while arrived:
            self._state.put_back(arrived.pop())


def check_count(count_max: int) -> None:
    """Raise UsageError if a number of messages is invalid."""
    given: object = count_max
    if not isinstance(given, int) or given < 1:
        raise UsageError(f"count_max={count_max!r}; a whole number from 1 on is expected")


def check_batch_options(count_max: int, within_s: float) -> None:
    """Raise UsageError if the size or time of batches is invalid."""
    check_count(count_max)
    if not 0 <= within_s <= WITHIN_MAX_S:
        raise UsageError(f"within_s={within_s!r}; 0 to {WITHIN_MAX_S} seconds are expected")


class IterableConsumer(Protocol):
    """A consumer that can be iterated over."""

    iteration_slots: IterationSlots

    async def open(self) -> object:
        """Connect if it is not connected yet."""
        ...

    async def advance(
        self, slot: IterationSlot, count_max: int = 1, *, within_s: float = 0.0
    ) -> bool:
        """Acknowledge what was delivered before, and take the next messages; return False after the
        end."""
        ...

    async def close(self) -> None:
        """Return all unsettled messages."""
        ...


class Batches:
    """Iterates over lists of messages. Each list is acknowledged when the loop asks for the next
    one; otherwise like `Iteration`."""

    def __init__(
        self, consumer: IterableConsumer, *, is_owner: bool, count_max: int, within_s: float
    ) -> None:
        check_batch_options(count_max, within_s)
        self._consumer = consumer
        self._is_owner = is_owner
        self._count_max = count_max
        self._within_s = within_s
        self._slot = IterationSlot()
        self._loop: asyncio.AbstractEventLoop | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Delivery]:
        return [each for each in await self._next_batch() if isinstance(each, Delivery)]

    async def _next_batch(self) -> list[HeldMessage]:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            await self._consumer.open()
        slot = self._slot
        if not slot.arrived and not await self._consumer.advance(
            slot, self._count_max, within_s=self._within_s
        ):
            self._is_owner = False
            raise StopAsyncIteration
        return slot.deliver_arrived()

    def __del__(self) -> None:
        loop = getattr(self, "_loop", None)
        if loop is None:
            return
        self._consumer.iteration_slots.end_iteration(self._slot)
        if self._is_owner and not loop.is_closed():
            consumer = self._consumer
            loop.call_soon_threadsafe(lambda: loop.create_task(consumer.close()))


class Iteration:
    """Iterates over messages. Each is acknowledged when the loop asks for the next one.

    A consumer that was not opened is opened by its first iteration and closed at its end, so that
    `async for message in Consumer(...)` is enough. A loop that ends early does not say why, so its
    last message is redelivered, unless it was acknowledged, or the consumer's own block ends
    without an exception."""

    def __init__(self, consumer: IterableConsumer, *, is_owner: bool) -> None:
        self._batches = Batches(consumer, is_owner=is_owner, count_max=1, within_s=0.0)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        (message,) = await anext(self._batches)
        return message
