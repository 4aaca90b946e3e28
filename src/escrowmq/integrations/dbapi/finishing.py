"""Ends what must not be left half done: beginnings and rollbacks of transactions, and steps on
connections that a driver would close in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

_PATIENCE_S: Final = 5.0

T = TypeVar("T")


async def finish(work: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine, and return its result. If the caller is cancelled meanwhile, it still runs
    to its end, for up to five more seconds, and then the cancellation is raised."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    until_s = 0.0
    while not task.done():
        left_s = None if cancelled is None else until_s - loop.time()
        # Here, because a scope of anyio that is cancelled cancels each wait, again and again.
        if left_s is not None and left_s <= 0:
            task.cancel()
            break
        try:
            await asyncio.wait([task], timeout=left_s)
        except asyncio.CancelledError as error:
            if cancelled is None:
                until_s = loop.time() + _PATIENCE_S
            cancelled = error
    if cancelled is None:
        return task.result()
    if task.done() and not task.cancelled():
        task.exception()  # else the event loop would report it
    raise cancelled
