"""Closes a client: this takes a moment, and must complete even if its caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from escrowmq.client.user_failures import is_failure
from escrowmq.errors import ClientClosed

T = TypeVar("T")


class Closing:
    """The work of a client's `close`: started once, awaited by all who close. If a waiter is
    cancelled, the work continues, so that a closed client leaves nothing open; the waiter may call
    again to wait for the rest."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start, unless it has started; start again if the event loop's own end had cancelled
        it."""
        if self._task is None or self._task.cancelled():
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def wait(self) -> None:
        """Start it if necessary, and wait until it is done."""
        self.begin()
        assert self._task is not None
        await asyncio.shield(self._task)


async def unless_closed(work: asyncio.Future[T]) -> T:
    """Wait for work of a client that others may wait for too: cancelling one waiter does not stop
    it. Only closing the client stops it, with ClientClosed: a CancelledError would look to a task
    as if someone had cancelled it."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError as error:
        if is_failure(error):
            raise ClientClosed("the client was closed meanwhile; make a new one") from error
        raise
