"""Caches answers for a moment: however many viewers there are, the cluster is asked once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeVar

T = TypeVar("T")

ANSWERS_MAX: Final = 4_000
FRESH_S: Final = 1.8
"""The seconds for which answers are cached: a little less than the interval at which pages
refresh."""

REQUESTS_MAX: Final = 16
"""The most requests to the cluster at a time."""


class AnswerCache:
    """Caches the cluster's answers for a moment, so that many viewers cause one request."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._answers: OrderedDict[object, tuple[float, asyncio.Future[Any]]] = OrderedDict()
        self._room = asyncio.Semaphore(REQUESTS_MAX)

    async def get_or_request(
        self, key: object, ask: Callable[[], Awaitable[T]], *, fresh_s: float = FRESH_S
    ) -> T:
        """Return the cached answer, or wait for the request in progress, or make a new one. A
        failed request is not cached, so the next caller makes it again."""
        known = self._answers.get(key)
        if known is not None:
            at_s, future = known
            if not future.done() or self._now_s() - at_s < fresh_s:
                found: T = await asyncio.shield(future)
                return found
        task = asyncio.ensure_future(self._request(ask))
        self._answers[key] = (self._now_s(), task)
        self._answers.move_to_end(key)
        while len(self._answers) > ANSWERS_MAX:
            self._answers.popitem(last=False)
        task.add_done_callback(partial(self._forget_failure, key))
        return await asyncio.shield(task)

    def _forget_failure(self, key: object, task: asyncio.Future[Any]) -> None:
        """Drop a failed request, also if nobody waits for it any more."""
        is_failed = task.cancelled() or task.exception() is not None
        if is_failed and self._answers.get(key, (0.0, None))[1] is task:
            del self._answers[key]

    async def _request(self, ask: Callable[[], Awaitable[T]]) -> T:
        async with self._room:
            return await ask()

    def clear(self) -> None:
        """Drop the cached answers, because something in the cluster was changed. Requests in
        progress may have been answered before that; they serve only who waits for them now."""
        self._answers.clear()
