"""The end of a client, which takes a moment and must come to its own end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from escrowmq.client.user_failures import is_failure
from escrowmq.errors import ClientClosed

T = TypeVar("T")


class Closing:
    """The work of a client's `close`: begun once, and waited for by everybody who closes. Whoever
    is cancelled while waiting leaves it running, so that nothing stays open behind a client that
    calls itself closed, and may come back to wait for the rest."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Begin, unless it has begun; again when the event loop's own end had cancelled it."""
        if self._task is None or self._task.cancelled():
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def wait(self) -> None:
        """Begin it if need be, and wait until it is done."""
        self.begin()
        assert self._task is not None
        await asyncio.shield(self._task)


async def unless_closed(work: asyncio.Future[T]) -> T:
    """Wait for work of a client that others may wait for too: who gives up does not stop it. Only
    the client's end stops it, which is ClientClosed: a CancelledError would tell a task that
    nobody has cancelled that it was."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError as error:
        if is_failure(error):
            raise ClientClosed("the client was closed meanwhile; make a new one") from error
        raise
