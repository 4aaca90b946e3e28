"""Calls user code with the queues that a consumer starts or stops reading."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

from escrowmq.client.core.callables import is_coroutine
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.instance import ClientInstance
from escrowmq.client.workers import Workers
from escrowmq.errors import ClientClosed, UsageError

_log = logging.getLogger(__name__)

AssignmentCallback = Callable[[list[MessageQueue]], Any]
"""A user's callback: a plain function, called on a thread of its own, or a coroutine function."""

_CALLBACK_TIMEOUT_S: Final = 60.0
"""Timeout of a callback in seconds: one that runs longer is abandoned, so that the next ones are
called."""


class AssignmentCallbacks:
    """Calls the user's callbacks one after another, in the order of events. Rebalancing does not
    wait for them."""

    def __init__(
        self,
        instance: ClientInstance,
        *,
        on_assigned: AssignmentCallback | None,
        on_revoked: AssignmentCallback | None,
        own_retries: str,
        patience_s: float = _CALLBACK_TIMEOUT_S,
    ) -> None:
        self._patience_s = patience_s
        self._instance = instance
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._own_retries = own_retries
        self._last_call: asyncio.Task[None] | None = None
        """The most recently scheduled call; each call waits for the one before."""
        self._running: asyncio.Task[None] | None = None
        """The call in which a callback runs now."""
        self._workers = Workers(threads_max=1, name="queues of a consumer")

    def schedule_assigned(self, queues: Iterable[MessageQueue]) -> None:
        """Schedule the callback for queues that are read from now on."""
        self._schedule(self._on_assigned, queues)

    def schedule_revoked(self, queues: Iterable[MessageQueue]) -> None:
        """Schedule the callback for queues that are no longer read; their offsets are already
        committed."""
        self._schedule(self._on_revoked, queues)

    def is_inside_callback(self) -> bool:
        """Whether the caller is a callback that is a coroutine function."""
        return self._running is not None and asyncio.current_task() is self._running

    async def wait_for_calls(self) -> None:
        """Wait until all callbacks have been called. The thread ends with the last one, even if
        this is cancelled before."""
        try:
            if self._last_call is not None:
                await asyncio.wait([self._last_call])
        finally:
            self._workers.close()

    def _schedule(
        self, callback: AssignmentCallback | None, queues: Iterable[MessageQueue]
    ) -> None:
        if callback is None:
            return
        unwrap = self._instance.options.without_namespace
        shown = sorted(
            MessageQueue(unwrap(queue.topic), queue.broker_name, queue.queue_id)
            for queue in queues
            if queue.topic != self._own_retries
        )
        if shown:
            try:
                self._last_call = self._instance.spawn(
                    self._call_after(callback, shown, self._last_call)
                )
            except ClientClosed:
                pass
            except UsageError as error:
                # Too many tasks are running, so the callback is skipped; the queues move
                # nevertheless.
                _log.error("%r was not called with %s: %s", callback, shown, error)

    async def _call_after(
        self,
        callback: AssignmentCallback,
        queues: list[MessageQueue],
        before: asyncio.Task[None] | None,
    ) -> None:
        if before is not None:
            await asyncio.wait([before])
        self._running = asyncio.current_task()
        try:
            if is_coroutine(callback):
                async with asyncio.timeout(self._patience_s):
                    await callback(queues)
            else:
                await self._run_callback(callback, queues)
        except Exception:  # noqa: BLE001 - the user's code; logged, and the queues stay
            _log.exception("the callback for queues failed: %r", callback)
        finally:
            self._running = None

    async def _run_callback(self, callback: AssignmentCallback, queues: list[MessageQueue]) -> None:
        future = self._workers.run(callback, queues)
        done, _ = await asyncio.wait([future], timeout=self._patience_s)
        if not done:
            self._workers.abandon(future)
            raise TimeoutError(f"it has not returned within {self._patience_s} s")
        future.result()
