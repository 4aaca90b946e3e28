"""The asyncio consumer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Self, Unpack

from escrowmq.base.codes import Request, Response
from escrowmq.client.blocking.delivery import Delivery as PlainDelivery
from escrowmq.client.broker_requests import BrokerRequestHandlers
from escrowmq.client.client_settings import ClientOptions, parse_client_options
from escrowmq.client.closing import CloseTask
from escrowmq.client.consumer_settings import (
    ConsumerOptions,
    ConsumerSettings,
    split_consumer_settings,
)
from escrowmq.client.consumer_state import ConsumerState
from escrowmq.client.core.callables import is_coroutine
from escrowmq.client.core.redelivery import BROKER_DECIDES
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.subscription import (
    SQL92,
    Subscription,
    parse_subscription,
    parse_topics,
)
from escrowmq.client.core.validation import check_group, check_topic
from escrowmq.client.delivery import Delivery, HeldMessage
from escrowmq.client.handler_runs import HandlerRunner
from escrowmq.client.help_and_completion import KeywordOnly, SettingsSignature, TidyCompletion
from escrowmq.client.instance import ClientInstance
from escrowmq.client.iteration import (
    Batches,
    Iteration,
    IterationSlot,
    IterationSlots,
    check_count,
)
from escrowmq.client.offset_stores import make_offset_store
from escrowmq.client.offsets import QueueBounds, SeekPosition
from escrowmq.client.portal import Caller, LoopCaller
from escrowmq.client.producer import Producer
from escrowmq.client.send_backs import SendBacks
from escrowmq.client.tracing import Tracer, trace_topic
from escrowmq.codec.client_bodies import CheckClientBody, ConsumerBody
from escrowmq.codec.fastjson import encode
from escrowmq.errors import (
    ClientClosed,
    EscrowMQError,
    NotSupported,
    RouteMissing,
    TransportError,
    UsageError,
    response_error,
)

if TYPE_CHECKING:
    from types import TracebackType

_log = logging.getLogger(__name__)

_RESEND_GROUP: Final = "escrowmq-returns"
"""The producer group for resending a message that no broker took back for redelivery."""

_END_S: Final = 3.0
"""Timeout in seconds of each step in which `close` informs brokers."""


class Consumer(KeywordOnly, TidyCompletion):
    """Receives messages, shared with the other members of its group.

    >>> async def main():
    ...     async with escrowmq.aio.Consumer(nameserver, group="mailer", topic="paid") as consumer:
    ...         async for message in consumer:
    ...             return message.topic  # acknowledged when the next one is asked for
    >>> asyncio.run(main())
    'paid'

    `name_servers` is `host:port`, several separated by `;`; None means the environment variable
    NAMESRV_ADDR. With `handler=`, messages are passed to it instead, `concurrency` at a time: it
    returns when it has consumed a message, and raises to have it redelivered. Settings are those of
    `ConsumerOptions` and `ClientOptions`."""

    __signature__ = SettingsSignature(ConsumerOptions, ClientOptions)
    _INTERNAL = frozenset({
        "advance", "bounds", "instance", "iteration_slots", "options", "put_back",
        "take_undelivered", "take_undelivered_into", "wire_group", "wire_queue",
    })  # fmt: skip

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        group: str,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        self._is_open = self._is_closed = False
        check_group(group)
        self.options, connection = split_consumer_settings(settings)
        self.group = group
        self.instance = ClientInstance(parse_client_options(name_servers, connection))
        self.wire_group = self.instance.options.with_namespace(group)
        self._calls = self._caller()
        self._producer = Producer(group=_RESEND_GROUP, instance=self.instance)
        self._state = self._state_class()(
            self.instance,
            self.options,
            group=self.wire_group,
            offsets=make_offset_store(self.instance, self.wire_group, self.options),
            returns=SendBacks(self.instance, self._producer, group=self.wire_group),
            stamp=self._set_portal,
            kind=self._delivery_class(),
        )
        self.bounds = QueueBounds(self.instance)
        handler, reading, watch = self.options.handler, self._state, self._state.interceptor_calls
        self._handler_runner = (
            HandlerRunner(handler, self.options, take=reading.take, hold=reading.hold, watch=watch)
            if handler is not None
            else None
        )
        if topic := trace_topic(self.options.trace):
            watch.tracer = Tracer(self.instance, topic, group=self.wire_group, role="CONSUME")
        self.iteration_slots = IterationSlots(self._state)
        self._end = asyncio.Event()
        self._ending = CloseTask(self._close)
        self._subscribe_from_settings()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open" if self._is_open else "not open yet"
        topics = ", ".join(self._state.subscriptions)
        return f"<aio.Consumer of group {self.group!r} for {topics or 'no topic'}, {state}>"

    # -- life --------------------------------------------------------------------------------

    async def open(self) -> Self:
        """Open the consumer. Unreachable servers are retried in the background. Raises
        ExpressionInvalid or NotSupported if a broker refuses a filter."""
        if self._is_closed:
            raise ClientClosed("the consumer is closed; make a new one")
        if self._is_open:
            return self
        self._is_open = True
        try:
            await self._open()
        except BaseException:
            await self.close()
            raise
        return self

    async def _open(self) -> None:
        instance, reading = self.instance, self._state
        if reading.is_known:
            instance.heartbeats.add_consumer(self.wire_group, self._heartbeat_body)
        run_handler = None if self._handler_runner is None else self._handler_runner.run_handler
        BrokerRequestHandlers(reading, run_handler).register()
        instance.on_route_change.append(lambda _topic: reading.balance.request_round())
        await instance.open()
        for topic in reading.subscriptions:
            reading.record_queues(topic, instance.book.read_queues(topic))
        await self._producer.open()
        if reading.interceptor_calls.tracer is not None:
            reading.interceptor_calls.tracer.open()
        for wanted in list(reading.subscriptions.values()):
            await self._check_filter(wanted)
        if self.options.auto_commit:
            instance.run_every(self.options.commit_interval_ms, reading.store_offsets)
        if self.options.is_orderly:
            reading.renew_locks_periodically()
        instance.keep_running("the sharing out of queues", reading.balance.run)
        if self._handler_runner is not None:
            self._handler_runner.open(instance)

    async def close(self) -> None:
        """Close the consumer: wait for running handlers, commit offsets, leave the group. Unsettled
        messages are redelivered. Takes a few seconds at most; calling it again does nothing. If a
        handler or a callback for queues calls it, it closes after that has returned."""
        self._is_closed = True
        self._ending.begin()
        runner, callbacks = self._handler_runner, self._state.assignment_callbacks
        if not ((runner and runner.is_inside_handler()) or callbacks.is_inside_callback()):
            await self._ending.wait()

    async def wait(self) -> None:
        """Wait until the consumer is closed."""
        await self._end.wait()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None and not self._is_closed:
            with contextlib.suppress(EscrowMQError):
                await self.iteration_slots.settle_all(None)
        await self.close()

    # -- receiving ---------------------------------------------------------------------------

    def __aiter__(self) -> Iteration:
        """Iterate over messages. Each is acknowledged when the loop asks for the next one, or when
        the consumer's block ends without an exception; after an exception it is redelivered."""
        self._check_no_handler()
        return Iteration(self, is_owner=not self._is_open)

    def batches(self, count_max: int = 100, *, within_s: float = 1.0) -> Batches:
        """Iterate with `async for` over lists of messages of all queues. A list ends when it is
        full, or `within_s` seconds after its first message. It is acknowledged when the loop asks
        for the next one, or when the consumer's block ends without an exception. After an exception
        it is redelivered, except messages that were settled with `ack()`, `retry()` or `reject()`.
        With `is_orderly`, a list has the available messages of one queue."""
        self._check_no_handler()
        return Batches(self, is_owner=not self._is_open, count_max=count_max, within_s=within_s)

    async def receive(
        self, count_max: int = 32, *, timeout_s: float | None = None
    ) -> list[Delivery]:
        """Return up to `count_max` messages of one queue as soon as there is one, or none after the
        timeout. Settle each with `ack()`, `retry()` or `reject()`."""
        found: list[Delivery] = []
        for message in await self.take_undelivered(count_max, timeout_s=timeout_s):
            assert isinstance(message, Delivery)
            found.append(message)
        return found

    # -- topics ------------------------------------------------------------------------------

    async def subscribe(self, topic: str, *, tags: str = "", sql: str = "") -> None:
        """Subscribe to one more topic, or to other messages of a topic, as all members must. A
        request that a broker holds goes on with the former condition, for up to `pull_wait_ms`;
        with `mode="pop"`, messages that only the new one matches are skipped meanwhile."""
        self._check_usable()
        wanted = self._checked_subscription(topic, tags=tags, sql=sql)
        await self._check_filter(wanted)
        self._add_subscription(wanted)
        await self.instance.heartbeats.send_to_all()
        with contextlib.suppress(RouteMissing, TransportError):
            await self.instance.route(wanted.topic)
        self._state.balance.request_round()

    async def unsubscribe(self, topic: str) -> None:
        """Stop reading a topic."""
        self._check_usable()
        wire_topic = self.instance.options.with_namespace(topic)
        if self._state.subscriptions.pop(wire_topic, None) is None:
            raise UsageError(f"{topic!r} is not subscribed to; there is nothing to leave")
        self.instance.unwatch_topic(wire_topic)
        self._state.balance.request_round()
        self._state.leave_topics()
        await self.instance.heartbeats.send_to_all()

    # -- queues ------------------------------------------------------------------------------

    async def queues(self) -> list[MessageQueue]:
        """Return the queues that this member reads now."""
        self._check_usable()
        unwrap = self.instance.options.without_namespace
        retry_topic = self._state.retry_topic()
        return sorted(
            MessageQueue(unwrap(queue.topic), queue.broker_name, queue.queue_id)
            for queue in self._state.current_queues()
            if queue.topic != retry_topic
        )

    async def pause(self, *queues: MessageQueue) -> None:
        """Stop delivering messages of these queues, or of all queues if none are given."""
        self._pause(queues, is_paused=True)

    async def resume(self, *queues: MessageQueue) -> None:
        """Continue to deliver messages of these queues, or of all queues if none are given."""
        self._pause(queues, is_paused=False)

    async def seek(self, queue: MessageQueue, where: SeekPosition) -> None:
        """Continue elsewhere in a queue: at an offset, at the first message since a time (a
        datetime with a time zone), at the `first` message, or at the end (`last`). The group's
        offset moves too, unless `auto_commit` is off."""
        queue_offset = await self.bounds.seek_offset(self.wire_queue(queue), where)
        reader = self._state.reader_of(queue)  # the queue may have moved meanwhile
        reader.seek(queue_offset)
        if self.options.auto_commit:
            await self._state.offsets.store_offsets([reader])

    async def position(self, queue: MessageQueue) -> int:
        """Return the offset below which this member has settled every message of a queue."""
        self._check_usable()
        return self._state.reader_of(queue).fetched.commit_offset

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's committed offset; None if there is none."""
        return await self._state.offsets.committed(self.wire_queue(queue))

    async def commit(self) -> None:
        """Commit the offsets of settled messages immediately instead of at the next interval."""
        self._check_usable()
        await self._state.store_offsets()

    # -- for this room -----------------------------------------------------------------------

    def wire_queue(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue that this member reads, by its broker's name; otherwise raise."""
        self._check_usable()
        return self._state.reader_of(queue).queue

    async def take_undelivered(
        self, count_max: int, *, timeout_s: float | None = None
    ) -> list[HeldMessage]:
        """Return up to `count_max` undelivered messages of one queue; `receive` wraps this."""
        self._check_may_receive()
        check_count(count_max)
        return await self._state.take(count_max, timeout_s=timeout_s)

    async def take_undelivered_into(
        self, box: list[HeldMessage], count_max: int, *, timeout_s: float | None = None
    ) -> None:
        """Take messages into the caller's list, so that a cancelled call loses none."""
        box += await self.take_undelivered(count_max, timeout_s=timeout_s)

    async def advance(
        self, slot: IterationSlot, count_max: int = 1, *, within_s: float = 0.0
    ) -> bool:
        """Acknowledge the messages that the iteration delivered before, and fetch its next ones
        into `slot`. Return False when the consumer is closed."""
        try:
            await self.iteration_slots.acknowledge_delivered(slot)
            self._check_may_receive()
            await self.iteration_slots.fetch_next(slot, count_max, within_s=within_s)
        except ClientClosed:
            if self._is_closed:
                return False
            raise
        return bool(slot.arrived)

    def put_back(self, messages: list[HeldMessage]) -> None:
        """Put back messages that were taken but reached no caller."""
        while messages:
            self._state.put_back(messages.pop())

    @property
    def is_closed(self) -> bool:
        """Whether the consumer was closed."""
        return self._is_closed

    # -- inside ------------------------------------------------------------------------------

    def _delivery_class(self) -> type[HeldMessage]:
        """Return the class of deliveries. Plain handlers get one whose methods need no `await`."""
        handler = self.options.handler
        return Delivery if handler is None or is_coroutine(handler) else PlainDelivery

    def _caller(self) -> Caller:
        return LoopCaller(lambda: self.instance.loop)

    def _set_portal(self, message: HeldMessage) -> None:
        """Set the portal of a blocking delivery, on which its methods run."""
        if isinstance(message, PlainDelivery):
            message.portal = self._calls

    def _state_class(self) -> type[ConsumerState]:
        if self.options.mode != "pop":
            return ConsumerState
        from escrowmq.client.pop_consumer import PopConsumerState

        return PopConsumerState

    def _subscribe_from_settings(self) -> None:
        topics = parse_topics(self.options.topics)
        if self.options.topic and self.options.topic in topics:
            raise UsageError(f"{self.options.topic!r} is given as topic= and in topics=")
        if self.options.topic:
            self._add_subscription(
                self._checked_subscription(
                    self.options.topic, tags=self.options.tags, sql=self.options.sql
                )
            )
        for topic, tags in topics.items():
            self._add_subscription(self._checked_subscription(topic, tags=tags, sql=""))
        for queue in self.options.queues:
            if self.instance.options.with_namespace(queue.topic) not in self._state.subscriptions:
                self._add_subscription(self._checked_subscription(queue.topic, tags="", sql=""))
        if self.options.queues:
            return
        if not self.options.is_broadcasting and self.options.mode == "pull":
            self._add_subscription(
                Subscription(topic=self._state.retry_topic(), version=self.instance.clock.now_ms())
            )

    def _checked_subscription(self, topic: str, *, tags: str, sql: str) -> Subscription:
        check_topic(topic, instead="read another")
        return parse_subscription(
            topic,
            tags=tags,
            sql=sql,
            version=self.instance.clock.now_ms(),
            wire_topic=self.instance.options.with_namespace(topic),
        )

    def _add_subscription(self, wanted: Subscription) -> None:
        if wanted.topic not in self._state.subscriptions:
            self.instance.watch_topic(wanted.topic)
        self._state.subscriptions[wanted.topic] = wanted

    async def _check_filter(self, wanted: Subscription) -> None:
        """Ask a broker whether it accepts the filter expression. If no broker can be reached, a bad
        filter is noticed only while consuming."""
        if wanted.kind != SQL92:
            return
        body = CheckClientBody(
            client_id=self.instance.client_id,
            group=self.wire_group,
            namespace=self.instance.options.namespace or None,
            subscription_data=wanted.heartbeat_body(),
        )
        try:
            queues = await self.instance.queues_to_read(wanted.topic)
            address = self.instance.address_of(queues[0].broker_name)
            reply = await self.instance.request(
                address, Request.CHECK_CLIENT_CONFIG, {}, encode(body)
            )
        except (RouteMissing, TransportError, IndexError) as error:
            _log.info("the condition %r cannot be checked yet: %s", wanted.expression, error)
            return
        if reply.code == Response.SYSTEM_ERROR:
            raise NotSupported(reply.remark or "", code=reply.code, address=address)
        if reply.code != Response.SUCCESS:
            raise response_error(reply.code, reply.remark, address=address)

    def _heartbeat_body(self) -> ConsumerBody:
        start = self.options.consume_from
        from_where = {"first": "FIRST_OFFSET", "last": "LAST_OFFSET"}
        return ConsumerBody(
            group_name=self.wire_group,
            consume_type="CONSUME_PASSIVELY",
            message_model="BROADCASTING" if self.options.is_broadcasting else "CLUSTERING",
            consume_from_where="CONSUME_FROM_"
            + (from_where[start] if isinstance(start, str) else "TIMESTAMP"),
            subscription_data_set=[
                wanted.heartbeat_body() for wanted in self._state.subscriptions.values()
            ],
        )

    def _check_usable(self) -> None:
        if self._is_closed:
            raise ClientClosed("the consumer is closed; make a new one")
        if not self._is_open:
            raise ClientClosed("the consumer is not open; use `async with`, or await its open()")
        self.instance.check_usable()

    def _check_may_receive(self) -> None:
        self._check_usable()
        self._check_no_handler()
        if not self._state.has_topics:
            raise UsageError(
                "the consumer has no topic, so it would receive nothing; give it topic= or "
                "topics=, or call subscribe()"
            )

    def _check_no_handler(self) -> None:
        if self._handler_runner is not None:
            raise UsageError("the consumer has a handler, which gets every message")

    def _pause(self, queues: Sequence[MessageQueue], *, is_paused: bool) -> None:
        self._check_usable()
        self._state.pause(queues, is_paused=is_paused)

    async def _close(self) -> None:
        try:
            if self._is_open:
                await self._shut_down()
        finally:
            await self.instance.close()
            self._end.set()

    async def _shut_down(self) -> None:
        self._state.stop()
        if self._handler_runner is not None:
            await self._handler_runner.close()
        with contextlib.suppress(EscrowMQError, TimeoutError):
            async with asyncio.timeout(_END_S):
                await self.iteration_slots.settle_all(BROKER_DECIDES)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await self._state.balance.stop()
        with contextlib.suppress(EscrowMQError, TimeoutError):
            async with asyncio.timeout(_END_S):
                await self._state.release_all_queues()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await self._state.assignment_callbacks.wait_for_calls()
        if self._state.interceptor_calls.tracer is not None:
            await self._state.interceptor_calls.tracer.close()
        await self._producer.close()
