"""Calls user code with the queues that a consumer starts or stops reading."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

from escrowmq.client.core.callables import is_coroutine
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.instance import Instance
from escrowmq.client.workers import Workers
from escrowmq.errors import ClientClosed, UsageError

_log = logging.getLogger(__name__)

Told = Callable[[list[MessageQueue]], Any]
"""A user's callback: a plain function, called on a thread of its own, or a coroutine function."""

_TELLING_S: Final = 60.0
"""Timeout of a callback in seconds: one that runs longer is abandoned, so that the next ones are
called."""


class AssignmentCallbacks:
    """Calls the user's callbacks one after another, in the order of events. Rebalancing does not
    wait for them."""

    def __init__(
        self,
        instance: Instance,
        *,
        on_assigned: Told | None,
        on_revoked: Told | None,
        own_retries: str,
        patience_s: float = _TELLING_S,
    ) -> None:
        self._patience_s = patience_s
        self._instance = instance
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._own_retries = own_retries
        self._newest: asyncio.Task[None] | None = None
        """The most recently scheduled call; each call waits for the one before."""
        self._workers = Workers(threads_max=1, name="queues of a consumer")

    def assigned(self, queues: Iterable[MessageQueue]) -> None:
        """Schedule the callback for queues that are read from now on."""
        self._call_user(self._on_assigned, queues)

    def revoked(self, queues: Iterable[MessageQueue]) -> None:
        """Schedule the callback for queues that are no longer read; their offsets are already
        committed."""
        self._call_user(self._on_revoked, queues)

    async def settle(self) -> None:
        """Wait until all callbacks have been called."""
        if self._newest is not None:
            await asyncio.wait([self._newest])
        self._workers.close()

    def _call_user(self, told: Told | None, queues: Iterable[MessageQueue]) -> None:
        if told is None:
            return
        unwrap = self._instance.options.unwrap
        shown = sorted(
            MessageQueue(unwrap(queue.topic), queue.broker_name, queue.queue_id)
            for queue in queues
            if queue.topic != self._own_retries
        )
        if shown:
            try:
                self._newest = self._instance.spawn(self._call(told, shown, self._newest))
            except ClientClosed:
                pass
            except UsageError as error:
                # Too many tasks are running, so the callback is skipped; the queues move
                # nevertheless.
                _log.error("%r was not called with %s: %s", told, shown, error)

    async def _call(
        self, told: Told, queues: list[MessageQueue], before: asyncio.Task[None] | None
    ) -> None:
        if before is not None:
            await asyncio.wait([before])
        try:
            if is_coroutine(told):
                async with asyncio.timeout(self._patience_s):
                    await told(queues)
            else:
                await self._run(told, queues)
        except Exception:  # noqa: BLE001 - the user's code; logged, and the queues stay
            _log.exception("the callback for queues failed: %r", told)

    async def _run(self, told: Told, queues: list[MessageQueue]) -> None:
        future = self._workers.run(told, queues)
        done, _ = await asyncio.wait([future], timeout=self._patience_s)
        if not done:
            self._workers.give_up(future)
            raise TimeoutError(f"it has not returned within {self._patience_s} s")
        future.result()
