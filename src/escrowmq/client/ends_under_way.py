"""Ends of transactions that brokers are being told of while nobody waits: those of outboxes."""

from __future__ import annotations

import asyncio
import contextlib
import weakref

from escrowmq.client import portal
from escrowmq.errors import EscrowMQError

_all: weakref.WeakSet[EndsUnderWay] = weakref.WeakSet()


class EndsUnderWay:
    """Of one producer."""

    def __init__(self) -> None:
        self._told: set[asyncio.Future[None]] = set()
        _all.add(self)

    def keep(self, told: asyncio.Future[None]) -> asyncio.Future[None]:
        """One more; it is done when the broker has confirmed it, or is known not to."""
        self._told.add(told)
        told.add_done_callback(self._told.discard)
        return told

    def here(self) -> list[asyncio.Future[None]]:
        """Those on the event loop that is running."""
        loop = asyncio.get_running_loop()
        return [told for told in self._told if told.get_loop() is loop]

    async def wait(self) -> None:
        """Wait for those so far. Each gives up by itself in its time."""
        await _wait(self.here())


def wait_for_plain_ones() -> None:
    """For tests: wait for those of all plain producers of this process, so that what a broker
    holds then is what the program has done. Does nothing on an event loop, which it would stop."""
    with contextlib.suppress(RuntimeError):
        asyncio.get_running_loop()
        return
    with contextlib.suppress(EscrowMQError):  # the last client closes meanwhile
        portal.call_if_open(_wait_for_all)


async def _wait_for_all() -> None:
    await _wait([told for each in list(_all) for told in each.here()])


async def _wait(told: list[asyncio.Future[None]]) -> None:
    if told:
        await asyncio.wait(told)
