"""The queue of fetched messages that wait until the consumer takes them."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from typing import Protocol

from escrowmq.client.delivery import HeldMessage
from escrowmq.errors import ClientClosed


class MessageSource(Protocol):
    """A queue from which the inbox takes messages."""

    is_paused: bool
    is_dropped: bool

    @property
    def waiting_count(self) -> int:
        """Messages that have not been taken."""

    def take(self, count: int) -> list[HeldMessage]:
        """Take up to `count` of the waiting messages."""


class Inbox:
    """Hands out messages from one queue after another, so that a full queue does not starve others.

    With `is_orderly`, it hands out one batch of a queue at a time; `reopen_source` opens the queue
    again."""

    def __init__(self, *, is_orderly: bool) -> None:
        self._is_orderly = is_orderly
        self._ready: collections.deque[MessageSource] = collections.deque()
        self._listed: set[MessageSource] = set()
        self._busy: set[MessageSource] = set()
        self._waiters: collections.deque[asyncio.Future[None]] = collections.deque()
        self._complaints: dict[object, Exception] = {}
        self._is_closed = False

    def add_source(self, source: MessageSource) -> None:
        """Add a queue that has messages and may be taken from."""
        if source in self._listed or source in self._busy or not self._may_take_from(source):
            return
        self._listed.add(source)
        self._ready.append(source)
        self._wake()

    def reopen_source(self, source: MessageSource) -> None:
        """Hand out messages of an orderly queue again, because its batch is settled."""
        self._busy.discard(source)
        self.add_source(source)

    def is_busy(self, source: MessageSource) -> bool:
        """Whether a batch of this orderly queue is being handled."""
        return source in self._busy

    def set_refusal(self, source: object, error: Exception) -> None:
        """Make the next caller that would wait for messages raise this refusal of a broker."""
        self._complaints[source] = error
        self._wake()

    def clear_refusal(self, source: object) -> None:
        """Forget a refusal, because the broker no longer refuses."""
        if self._complaints:
            self._complaints.pop(source, None)

    def close(self) -> None:
        """Raise ClientClosed in all callers that wait: no more messages come."""
        self._is_closed = True
        while self._waiters:
            self._wake()

    async def take(self, count: int, *, timeout_s: float | None = None) -> list[HeldMessage]:
        """Return up to `count` messages of one queue as soon as there is one, or none after the
        timeout. Raises ClientClosed when the consumer is closed, and a broker's refusal if there is
        one."""
        try:
            async with asyncio.timeout(timeout_s):
                while not (found := self.take_now(count)):
                    if self._is_closed:
                        raise ClientClosed("the consumer is closed; make a new one")
                    if self._complaints:
                        raise self._complaints.pop(next(iter(self._complaints)))
                    await self._wait_for_source()
        except TimeoutError:
            return []
        return found

    def take_now(self, count: int) -> list[HeldMessage]:
        """Return up to `count` messages of one queue without waiting."""
        while self._ready and not self._is_closed:
            source = self._ready.popleft()
            self._listed.discard(source)
            if not self._may_take_from(source):
                continue
            found = source.take(count)
            if not found:  # none could be decompressed, or the queue's lock is too old
                continue
            if self._is_orderly:
                self._busy.add(source)
            elif source.waiting_count:
                self._listed.add(source)
                self._ready.append(source)
                self._wake()
            return found
        return []

    def _may_take_from(self, source: MessageSource) -> bool:
        return bool(source.waiting_count and not source.is_paused and not source.is_dropped)

    async def _wait_for_source(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._wake()  # it was woken but cannot continue: wake another one
            raise
        finally:
            with contextlib.suppress(ValueError):
                self._waiters.remove(waiter)

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
