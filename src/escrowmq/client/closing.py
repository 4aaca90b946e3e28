"""Closes a client. Closing takes a moment, and must complete even if its caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from escrowmq.client.user_failures import is_user_failure
from escrowmq.errors import ClientClosed

T = TypeVar("T")


class CloseTask:
    """The work of a client's `close`: started once, awaited by every caller. If a waiter is
    cancelled, the work continues, so that a closed client leaves nothing open; the waiter may call
    again to wait for the rest."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start the work unless it was started; start it again if the end of the event loop
        cancelled it."""
        if self._task is None or self._task.cancelled():
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def wait(self) -> None:
        """Start the work if necessary, and wait until it is done."""
        self.begin()
        assert self._task is not None
        await asyncio.shield(self._task)


async def await_unless_closed(work: asyncio.Future[T]) -> T:
    """Await a future that others may await too; cancelling one waiter does not cancel it. If the
    future is cancelled because the client was closed, raise ClientClosed: the waiting task would
    take a CancelledError for its own cancellation."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError as error:
        if is_user_failure(error):
            raise ClientClosed("the client was closed meanwhile; make a new one") from error
        raise
