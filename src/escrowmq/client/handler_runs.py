"""Passes messages to the user's handler, a limited number at a time."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from escrowmq.client.consumer_settings import ConsumerOptions, Handler
from escrowmq.client.core.callables import is_coroutine
from escrowmq.client.core.trace_records import ConsumeResult
from escrowmq.client.delivery import HeldMessage, MessageHold
from escrowmq.client.instance import ClientInstance
from escrowmq.client.interceptors import InterceptorCalls
from escrowmq.client.user_failures import is_user_failure
from escrowmq.client.workers import Workers
from escrowmq.errors import ClientClosed, EscrowMQError

_log = logging.getLogger(__name__)

_AFTER_REFUSAL_S: Final = 1.0

TakeMessages = Callable[[int], Awaitable[list[HeldMessage]]]
"""Waits for messages of one queue, and returns up to the given number."""


class HandlerRunner:
    """Runs the user's handler. After `open` it gets messages; `close` waits for running handlers
    and starts no more."""

    def __init__(
        self,
        handler: Handler,
        options: ConsumerOptions,
        *,
        take: TakeMessages,
        hold: Callable[[Sequence[HeldMessage]], MessageHold],
        watch: InterceptorCalls,
    ) -> None:
        self._handler: Callable[[Any], Any] = handler
        self._options = options
        self._take = take
        self._hold = hold
        self._interceptor_calls = watch
        self._is_coroutine = is_coroutine(handler)
        self._is_closing = False
        self._workers = Workers(threads_max=options.concurrency, name="escrowmq-handler")
        self._tasks: list[asyncio.Task[None]] = []

    def open(self, instance: ClientInstance) -> None:
        """Start to pass messages to the handler."""
        count = self._options.concurrency
        self._tasks = [
            instance.keep_running("a handler's place", self._run_loop) for _ in range(count)
        ]

    def is_inside_handler(self) -> bool:
        """Whether the caller is a handler."""
        return asyncio.current_task() in self._tasks

    async def close(self) -> None:
        """Wait for running handlers, up to a timeout; messages of those still running are
        redelivered."""
        self._is_closing = True
        if self._tasks:
            timeout_s = self._options.close_timeout_ms / 1000
            _, left = await asyncio.wait(self._tasks, timeout=timeout_s)
            for task in left:
                task.cancel()
            if left:
                _log.warning(
                    "%d handlers still ran at the end; their messages are redelivered", len(left)
                )
                await asyncio.wait(left, timeout=1.0)
        self._workers.close()

    async def run_handler(self, batch: Sequence[HeldMessage]) -> None:
        """Run the handler once; raises what the handler raises, and TimeoutError if the handler is
        abandoned."""
        given: Any = list(batch) if self._options.batch_max > 1 else batch[0]
        handler = (
            self._handler
            if not self._interceptor_calls.interceptors
            else self._with_interceptors(batch)
        )
        async with asyncio.timeout(self._options.consume_timeout_ms / 1000) as limit:
            try:
                if self._is_coroutine:
                    with self._interceptor_calls.around_consume(batch):
                        await self._handler(given)
                    return
                future = self._workers.run(handler, given)
                try:
                    result = await asyncio.shield(future)
                except asyncio.CancelledError:
                    self._workers.abandon(future)
                    raise
                if inspect.isawaitable(result):
                    await result
            except TimeoutError as error:
                if not limit.expired():
                    raise RuntimeError("the handler raised TimeoutError") from error
                raise

    def _with_interceptors(self, batch: Sequence[HeldMessage]) -> Callable[[Any], Any]:
        def handle(given: Any) -> Any:  # noqa: ANN401 - whatever the user's handler takes
            with self._interceptor_calls.around_consume(batch):
                return self._handler(given)

        return handle

    async def _run_loop(self) -> None:
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

    async def _handle(self, batch: list[HeldMessage]) -> None:
        level: int | None = None
        hold = self._hold(batch)
        try:
            await self.run_handler(batch)
        except TimeoutError:
            took = f"took longer than {self._options.consume_timeout_ms} ms and is given up"
            level = self._log_redelivery(batch, ConsumeResult.TIME_OUT, took)
        except BaseException as error:
            if not self._is_failure(error):
                raise
            level = self._log_redelivery(batch, ConsumeResult.EXCEPTION, "failed", error)
        finally:
            hold.end()
        await self._settle(batch, level)

    def _is_failure(self, error: BaseException) -> bool:
        """Whether the handler failed. A handler may cancel the task in which it runs; that also
        counts as its failure, unless the consumer itself is being closed."""
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None:
            while task.cancelling() and not self._is_closing:
                task.uncancel()
        return is_user_failure(error)

    def _log_redelivery(
        self,
        batch: list[HeldMessage],
        end: ConsumeResult,
        what: str,
        error: BaseException | None = None,
    ) -> int:
        """Log the failure and when the message is redelivered; return its delay level."""
        for message in batch:
            if message.delivery_state is not None:
                message.delivery_state.end = end
        _log.error("the handler %s: %s", what, self._describe_batch(batch), exc_info=error)
        return self._options.next_retry_level(batch[0].deliveries_before)

    def _describe_batch(self, batch: list[HeldMessage]) -> str:
        first, options = batch[0], self._options
        name = f"message {first.message_id} of {first.topic!r}"
        if first.keys:
            name += f", keys {' '.join(first.key_list)}"
        if len(batch) > 1:
            name += f", and {len(batch) - 1} more"
        attempt = f"attempt {first.deliveries_before + 1} of {options.attempts_max + 1}"
        if first.delivery_state is not None and first.delivery_state.is_settled:
            return f"{name}, {attempt}; it was settled before"
        if options.is_broadcasting and options.is_given_up(first.deliveries_before):
            return f"{name}; broadcast messages are not redelivered"
        if options.is_last_attempt(first.deliveries_before):
            return f"{name}, {attempt}; it goes to the dead letters of {first.group!r}"
        return f"{name}, {attempt}; it comes again"

    async def _settle(self, batch: list[HeldMessage], level: int | None) -> None:
        try:
            await batch[0].owner().settle_batch(batch, level)
        except EscrowMQError as error:
            _log.warning("%s is not settled: %s", batch[0].message_id, error)
