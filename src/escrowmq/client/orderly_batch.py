"""The batch of an orderly queue: the queue hands out no more messages until the batch is over."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from typing import Protocol

from escrowmq.client.delivery import DeliveryState, HeldMessage
from escrowmq.client.inbox import Inbox, MessageSource


class OrderlyQueue(MessageSource, Protocol):
    """A queue that hands out one batch at a time."""

    def put_back(self, messages: list[HeldMessage], generation: int) -> None:
        """Put taken messages back in front."""


class OrderlyBatch:
    """The messages of an orderly queue that are being handled. The batch is over once each of them
    is settled and the handler, or the body of the loop, has ended: a handler may settle a message
    early, and the next message must not overtake what it does after that."""

    def __init__(self, queue: OrderlyQueue, inbox: Inbox) -> None:
        self._queue = queue
        self._inbox = inbox
        self._unsettled_count = 0
        self._holds_count = 0
        self._failed: list[HeldMessage] = []
        self._pause_s = 0.0
        self.idle = asyncio.Event()
        """An event that is set while no batch is being handled."""
        self.idle.set()

    def begin(self, count: int) -> None:
        """Begin a batch of `count` messages."""
        self._unsettled_count = count
        if count:
            self.idle.clear()

    def make_hold(self) -> OrderlyHold:
        """Keep the batch from ending while a handler, or the body of a loop, has it."""
        self._holds_count += 1
        return OrderlyHold(self)

    def add_failed(self, message: HeldMessage, *, pause_s: float) -> None:
        """Keep a message for its next attempt, which begins after a pause."""
        self._failed.append(next_attempt(message))
        self._pause_s = max(self._pause_s, pause_s)

    def note_settled(self) -> None:
        """Count one message as settled; with the last one the batch may be over."""
        self._unsettled_count -= 1
        self._end_if_done()

    def end_hold(self) -> None:
        """Count one hold as ended; with the last one the batch may be over."""
        self._holds_count -= 1
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._unsettled_count > 0 or self._holds_count:
            return
        failed, self._failed = sorted(self._failed, key=lambda one: one.queue_offset), []
        pause_s, self._pause_s = self._pause_s, 0.0
        self.idle.set()
        if not failed:
            self._inbox.reopen_source(self._queue)
            return
        self._queue.put_back(failed, generation_of(failed[0]))
        asyncio.get_running_loop().call_later(pause_s, self._inbox.reopen_source, self._queue)


class OrderlyHold:
    """Keeps a batch from ending while one handler, or the body of one loop, has it."""

    def __init__(self, batch: OrderlyBatch) -> None:
        self._batch = batch
        self._loop = asyncio.get_running_loop()
        self._is_over = False

    def end(self) -> None:
        """End the hold."""
        if not self._is_over:
            self._is_over = True
            self._batch.end_hold()

    def end_threadsafe(self) -> None:
        """End the hold from any thread; it takes effect soon after."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.end)


def next_attempt(message: HeldMessage) -> HeldMessage:
    """Make the delivery for the next attempt after a failed one. It is a separate object: the
    handler of the failed one may still run, and must not be able to settle the next attempt."""
    again = copy.copy(message)
    again.deliveries_before += 1
    assert message.delivery_state is not None
    # It keeps the generation, so that the queue ignores it after a seek.
    again.delivery_state = DeliveryState(
        message.delivery_state.owner,
        message.delivery_state.source,
        generation=message.delivery_state.generation,
    )
    return again


def generation_of(message: HeldMessage) -> int:
    """Return the generation of the queue's messages to which this one belongs."""
    assert message.delivery_state is not None
    return message.delivery_state.generation
