"""Lingering sends: several messages to a queue are sent as one batch, and each caller gets its own
result."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from escrowmq.client.core.lingering_groups import BatchDestination, BatchGroups, MessageGroup
from escrowmq.client.core.message import Message
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.send_attempts import SendAnswer, SendRequest
from escrowmq.client.core.sending import (
    OutgoingMessage,
    SendResult,
    is_delayed,
    make_encoded_batch,
    parse_send_result,
    split_batch_result,
)
from escrowmq.client.inflight_limits import InflightLimits
from escrowmq.client.instance import ClientInstance
from escrowmq.client.producer_settings import ProducerOptions
from escrowmq.errors import ClientClosed, EscrowMQError, MessageRefused, RequestTimeout

if TYPE_CHECKING:
    from escrowmq.client.portal import FinishCallback
    from escrowmq.client.send_flow import SendDispatch

_ENTRY_SIZE: Final = 32
"""Upper bound for the bytes of a batch entry besides its body and properties."""

_LEAST_MS: Final = 1
Entry = tuple[int, bytes, bytes]


class _LingeringMessage(msgspec.Struct, eq=False):
    """One lingering message, and the function that informs its caller."""

    message: Message
    """The message for interceptors. It is the sender's own object, which may have changed
    meanwhile."""
    topic: str
    out: OutgoingMessage
    entry: Entry
    deadline: float
    timeout_ms: int
    finish: FinishCallback[SendResult]
    context: contextvars.Context | None
    is_dropped: bool = False
    """Whether its caller was cancelled before the message was sent."""


class LingeringSends:
    """The lingering sends of one producer."""

    def __init__(
        self, instance: ClientInstance, dispatch: SendDispatch, options: ProducerOptions
    ) -> None:
        self._instance = instance
        self._dispatch = dispatch
        self._options = options
        self._groups: BatchGroups[_LingeringMessage] = BatchGroups(
            linger_s=options.linger_ms / 1000,
            size_max=min(options.batch_size, options.body_size_max),
        )
        self._limits = InflightLimits(
            count_max=options.inflight_max, size_max=options.inflight_size_max
        )
        self._timer: asyncio.TimerHandle | None = None
        self._open: set[_LingeringMessage] = set()
        """Messages that have no result yet."""
        self._told = asyncio.Event()

    def try_send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None,
        timeout_ms: int | None,
        finish: FinishCallback[SendResult],
    ) -> bool:
        """Add a message, and return True. Return False if too many are in flight, or if there are
        interceptors, which must be called in the caller's own context."""
        if self._dispatch.interceptor_calls:
            return False
        out = self._dispatch.prepare(message)
        if not self._limits.try_reserve(len(out.body)):
            return False
        self._add_message(message, out, queue=queue, timeout_ms=timeout_ms, finish=finish)
        return True

    async def send(
        self, message: Message, *, queue: MessageQueue | None, timeout_ms: int | None
    ) -> SendResult:
        """Add a message and wait for its result."""
        out = self._dispatch.prepare(message)
        if not self._limits.try_reserve(len(out.body)):
            try:
                await self._wait_for_capacity(out, timeout_ms or self._options.timeout_ms)
            except BaseException as error:
                self._dispatch.interceptor_calls.after_send(message, None, error)
                raise
        future: asyncio.Future[SendResult] = self._instance.loop.create_future()
        finish = functools.partial(_set_future, future)
        item = self._add_message(message, out, queue=queue, timeout_ms=timeout_ms, finish=finish)
        try:
            return await future
        except asyncio.CancelledError:
            item.is_dropped = True
            raise

    async def flush(self) -> None:
        """Send lingering messages now, and wait until all sends that were begun have their
        result."""
        begun = {*self._open}
        if not begun:
            return
        self._groups.mark_all_due()
        self._send_due_groups()
        while begun & self._open:
            self._told.clear()
            await self._told.wait()

    # -- inside ------------------------------------------------------------------------------

    async def _wait_for_capacity(self, out: OutgoingMessage, timeout_ms: int) -> None:
        """Wait until the limits of messages in flight allow this one, and count it."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._limits.reserve(len(out.body))
        except TimeoutError as error:
            raise _timeout_error(out.topic, timeout_ms) from error

    def _add_message(
        self,
        message: Message,
        out: OutgoingMessage,
        *,
        queue: MessageQueue | None,
        timeout_ms: int | None,
        finish: FinishCallback[SendResult],
    ) -> _LingeringMessage:
        """Add a message, for which `_wait_for_capacity` or its caller has reserved capacity."""
        now, usual_ms = self._instance.now(), self._options.timeout_ms
        timeout_ms = timeout_ms or usual_ms
        entry = (out.flag, out.body, out.properties.encode())
        item = _LingeringMessage(
            message=message,
            topic=message.topic,
            out=out,
            entry=entry,
            deadline=now + timeout_ms / 1000,
            timeout_ms=timeout_ms,
            finish=finish,
            context=contextvars.copy_context() if self._dispatch.interceptor_calls else None,
        )
        self._open.add(item)
        if queue is not None and queue.topic != out.topic:
            queue = MessageQueue(out.topic, queue.broker_name, queue.queue_id)
        order_key = "" if queue is not None else message.order_key or ""
        leave_now = self._groups.add(
            BatchDestination(out.topic, order_key, queue),
            item,
            len(entry[1]) + len(entry[2]) + _ENTRY_SIZE,
            now=now,
            # A batch cannot have a delay, a compressed body, or messages with different timeouts.
            is_alone=bool(out.sys_flag) or is_delayed(message) or timeout_ms != usual_ms,
        )
        if leave_now or self._timer is None:
            self._send_due_groups()
        return item

    def _send_due_groups(self) -> None:
        """Send the groups that are due, and set the timer for the next."""
        instance = self._instance
        for group in self._groups.take_ready(instance.now()):
            try:
                task = instance.spawn(self._start_group(group))
            except EscrowMQError as error:
                self._finish_group(group, error)
            else:
                task.add_done_callback(functools.partial(self._on_group_task_done, group))
        wake_at = self._groups.next_due_at
        if self._timer is None and wake_at is not None:
            self._timer = instance.loop.call_at(wake_at, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._send_due_groups()

    async def _start_group(self, group: MessageGroup[_LingeringMessage]) -> None:
        now = self._instance.now()
        items = []
        for item in group.items:
            if item.is_dropped:
                self._report_result(item, None, None, asyncio.CancelledError())
            elif item.deadline <= now:
                self._report_result(item, None, None, _timeout_error(item.topic, item.timeout_ms))
            else:
                items.append(item)
        if items:
            await self._store_group(group.place, items)

    def _on_group_task_done(
        self, group: MessageGroup[_LingeringMessage], _: asyncio.Task[None]
    ) -> None:
        """Finish a group whose task has ended, perhaps before its first step."""
        self._finish_group(group, ClientClosed("the client was closed meanwhile; make a new one"))
        self._send_due_groups()

    def _finish_group(self, group: MessageGroup[_LingeringMessage], error: Exception) -> None:
        """Fail the callers that have no result, and let the next group for this destination be
        sent."""
        self._fail_messages(group.items, error)
        self._told.set()
        self._groups.release_next(group)

    async def _store_group(
        self, place: BatchDestination, items: Sequence[_LingeringMessage]
    ) -> None:
        """Store the messages as one batch. If the broker refuses it, store them one by one: the
        broker does not say which message it refuses, and has stored none."""
        try:
            await self._store_batch(place, items)
        except MessageRefused as error:
            if len(items) == 1:
                self._fail_messages(items, error)
                return
            for item in items:
                await self._store_group(place, [item])
        except Exception as error:  # noqa: BLE001 - raised again at the callers
            self._fail_messages(items, error)

    async def _store_batch(
        self, place: BatchDestination, items: Sequence[_LingeringMessage]
    ) -> None:
        first, topic = items[0], items[0].topic
        out = first.out
        if len(items) > 1:
            out = make_encoded_batch(
                [item.entry for item in items],
                topic=place.topic,
                unique_key=self._dispatch.new_id(),
                born_ms=first.out.born_ms,
            )
        # The timeouts of the first messages are extended by the time that they lingered.
        left_s = max(item.deadline for item in items) - self._instance.now()
        sent = await self._dispatch.sender.send(
            SendRequest(
                message=out,
                timeout_ms=max(_LEAST_MS, round(left_s * 1000)),
                queue=place.queue,
                order_key=place.order_key,
            )
        )
        whole = parse_send_result(sent.reply, sent.queue, out, topic=topic)
        keys = [item.out.unique_key for item in items]
        results = [whole] if len(items) == 1 else split_batch_result(whole, keys)
        for item, result in zip(items, results, strict=True):
            self._report_result(item, result, sent, None)

    def _fail_messages(self, items: Sequence[_LingeringMessage], error: Exception) -> None:
        """Fail each message that has no result yet."""
        for item in items:
            if item in self._open:
                self._report_result(item, None, None, copy_error(error))

    def _report_result(
        self,
        item: _LingeringMessage,
        result: SendResult | None,
        sent: SendAnswer | None,
        error: BaseException | None,
    ) -> None:
        self._open.discard(item)
        self._limits.release(len(item.out.body))
        if item.context is not None:
            item.context.run(
                self._dispatch.report_sent, item.message, item.out, result, sent, error
            )
        item.finish(result, error)


def copy_error(error: BaseException) -> BaseException:
    """Return a copy of an error for one more caller; raising an error modifies it."""
    own = type(error).__new__(type(error), *error.args)
    own.__dict__.update(error.__dict__)
    own.__cause__ = error.__cause__
    return own


def _timeout_error(topic: str, timeout_ms: int) -> RequestTimeout:
    return RequestTimeout(
        f"the message to {topic!r} was not sent within {timeout_ms} ms, because those before it "
        f"took too long; try again, or allow more time (timeout_ms)"
    )


def _set_future(
    future: asyncio.Future[SendResult],
    result: SendResult | None,
    error: BaseException | None = None,
    go_on: Callable[[], object] | None = None,
) -> None:
    assert go_on is None
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        assert result is not None
        future.set_result(result)
