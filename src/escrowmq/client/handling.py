"""Hands messages to the user's handler, so many at a time."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from escrowmq.client.consumer_settings import ConsumerOptions, Handler
from escrowmq.client.core.backoff import BROKER_DECIDES
from escrowmq.client.core.trace import End
from escrowmq.client.delivery import Held
from escrowmq.client.instance import Instance
from escrowmq.client.watching import Watch
from escrowmq.client.workers import Workers
from escrowmq.errors import ClientClosed, EscrowMQError

_log = logging.getLogger(__name__)

_AFTER_REFUSAL_S: Final = 1.0

Take = Callable[[int], Awaitable[list[Held]]]
"""Waits for at most so many messages of one queue."""


class Handling:
    """`open` begins; `close` lets running handlers end and begins no more."""

    def __init__(
        self, handler: Handler, options: ConsumerOptions, *, take: Take, watch: Watch
    ) -> None:
        self._handler = handler
        self._options = options
        self._take = take
        self._watch = watch
        self._is_coroutine = _is_coroutine(handler)
        self._workers = Workers(threads_max=options.concurrency, name="escrowmq-handler")
        self._tasks: list[asyncio.Task[None]] = []

    def open(self, instance: Instance) -> None:
        """Begin to hand messages out."""
        self._tasks = [instance.spawn(self._serve()) for _ in range(self._options.concurrency)]

    def is_inside(self) -> bool:
        """Whether a handler is the caller."""
        return asyncio.current_task() in self._tasks

    async def close(self) -> None:
        """Wait for the handlers that run, for a while; what they hold then comes again."""
        if self._tasks:
            timeout_s = self._options.close_timeout_ms / 1000
            _, left = await asyncio.wait(self._tasks, timeout=timeout_s)
            for task in left:
                task.cancel()
            if left:
                _log.warning(
                    "%d handlers still ran at the end; their messages come again", len(left)
                )
                await asyncio.wait(left, timeout=1.0)
        self._workers.close()

    async def call(self, batch: Sequence[Held]) -> None:
        """Run the handler once; it raises what the handler raises, and TimeoutError when the
        handler is given up."""
        given: Any = list(batch) if self._options.batch_max > 1 else batch[0]
        handler = self._handler if not self._watch.interceptors else self._watched(batch)
        async with asyncio.timeout(self._options.consume_timeout_ms / 1000) as limit:
            try:
                if self._is_coroutine:
                    with self._watch.around_consume(batch):
                        await self._handler(given)
                    return
                future = self._workers.run(handler, given)
                try:
                    result = await asyncio.shield(future)
                except asyncio.CancelledError:
                    self._workers.give_up(future)
                    raise
                if inspect.isawaitable(result):
                    await result
            except TimeoutError as error:
                if not limit.expired():
                    raise RuntimeError("the handler raised TimeoutError") from error
                raise

    def _watched(self, batch: Sequence[Held]) -> Handler:
        def handle(given: Any) -> Any:  # noqa: ANN401 - whatever the user's handler takes
            with self._watch.around_consume(batch):
                return self._handler(given)

        return handle

    async def _serve(self) -> None:
        while True:
            try:
                batch = await self._take(self._options.batch_max)
            except ClientClosed:
                return
            except EscrowMQError as error:
                _log.error("a broker refuses to hand out messages: %s", error)
                await asyncio.sleep(_AFTER_REFUSAL_S)
                continue
            await self._handle(batch)

    async def _handle(self, batch: list[Held]) -> None:
        level: int | None = None
        try:
            await self.call(batch)
        except TimeoutError:
            _log.error(
                "the handler took longer than %d ms with %s; it is given up and the message comes "
                "again", self._options.consume_timeout_ms, batch[0].message_id,
            )  # fmt: skip
            level = BROKER_DECIDES
            _mark(batch, End.TIME_OUT)
        except Exception:  # noqa: BLE001 - the user's code; logged, and the message comes again
            _log.exception("the handler failed; %s comes again", batch[0].message_id)
            level = BROKER_DECIDES
            _mark(batch, End.EXCEPTION)
        await self._settle(batch, level)

    async def _settle(self, batch: list[Held], level: int | None) -> None:
        try:
            await batch[0].desk().settle_batch(batch, level)
        except EscrowMQError as error:
            _log.warning("%s is not settled: %s", batch[0].message_id, error)


def _mark(batch: Sequence[Held], end: End) -> None:
    for message in batch:
        if message.ticket is not None:
            message.ticket.end = end


def _is_coroutine(handler: Handler) -> bool:
    call = getattr(handler, "__call__", None)  # noqa: B004 - an object with such a method
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)
