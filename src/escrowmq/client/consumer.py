"""The asyncio consumer."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, Self, Unpack

from escrowmq.base.codes import Request, Response
from escrowmq.client.blocking.delivery import Delivery as PlainDelivery
from escrowmq.client.broker_requests import Steering
from escrowmq.client.client_settings import ClientOptions, client_options
from escrowmq.client.closing import Closing
from escrowmq.client.consumer_settings import (
    ConsumerOptions,
    ConsumerSettings,
    split_consumer_settings,
)
from escrowmq.client.consumption import Reading
from escrowmq.client.core.callables import is_coroutine
from escrowmq.client.core.redelivery import BROKER_DECIDES
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.subscription import (
    SQL92,
    Subscription,
    check_topics,
    subscription,
)
from escrowmq.client.core.validation import check_group, check_topic
from escrowmq.client.delivery import Delivery, HeldMessage
from escrowmq.client.handler_runs import Handling
from escrowmq.client.help_and_completion import KeywordGroup, Settings, Tidy
from escrowmq.client.instance import Instance
from escrowmq.client.iteration import Batches, Iteration, IterationSlots, Slot
from escrowmq.client.kept_offsets import offsets_of
from escrowmq.client.offsets import QueueBounds
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

_RETURNS_GROUP: Final = "escrowmq-returns"
"""The producer group for resending a message that no broker took back for redelivery."""

_END_S: Final = 3.0
"""Timeout in seconds of each step in which `close` informs brokers."""

Where = int | dt.datetime | Literal["first", "last"]
"""A position in a queue: an offset, the first message stored since a time, the oldest message, or
the end."""


class Consumer(KeywordGroup, Tidy):
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

    __signature__ = Settings(ConsumerOptions, ClientOptions)
    _INTERNAL = frozenset({
        "advance", "hands", "instance", "options", "take", "take_into", "untake", "wire_group",
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
        self.instance = Instance(client_options(name_servers, connection))
        self.wire_group = self.instance.options.wrap(group)
        self._calls = self._caller()
        self._producer = Producer(group=_RETURNS_GROUP, instance=self.instance)
        self._reading = self._kind_of_reading()(
            self.instance,
            self.options,
            group=self.wire_group,
            offsets=offsets_of(self.instance, self.wire_group, self.options),
            returns=SendBacks(self.instance, self._producer, group=self.wire_group),
            stamp=self._stamp,
            kind=self._kind(),
        )
        self._bounds = QueueBounds(self.instance)
        handler, reading, watch = self.options.handler, self._reading, self._reading.watch
        self._handling = (
            Handling(handler, self.options, take=reading.take, hold=reading.hold, watch=watch)
            if handler is not None
            else None
        )
        if topic := trace_topic(self.options.trace):
            watch.tracer = Tracer(self.instance, topic, group=self.wire_group, role="CONSUME")
        self.hands = IterationSlots(self._reading)
        self._end = asyncio.Event()
        self._ending = Closing(self._close)
        self._subscribe_first()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open" if self._is_open else "not open yet"
        topics = ", ".join(self._reading.subscriptions)
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
        instance, reading = self.instance, self._reading
        if reading.is_known:
            instance.presence.add_consumer(self.wire_group, self._body)
        Steering(reading, self._handling.call if self._handling is not None else None).open()
        instance.on_route.append(lambda _topic: reading.balance.soon())
        await instance.open()
        for topic in reading.subscriptions:
            reading.note_queues(topic, instance.book.read_queues(topic))
        await self._producer.open()
        if reading.watch.tracer is not None:
            reading.watch.tracer.open()
        for wanted in list(reading.subscriptions.values()):
            await self._check(wanted)
        if self.options.auto_commit:
            instance.every(self.options.commit_interval_ms, reading.keep_offsets)
        if self.options.is_orderly:
            reading.watch_locks()
        instance.keep("the sharing out of queues", reading.balance.run)
        if self._handling is not None:
            self._handling.open(instance)

    async def close(self) -> None:
        """Close the consumer: wait for running handlers, commit offsets, leave the group. Unsettled
        messages are redelivered. Takes a few seconds at most; calling it again does nothing. When a
        handler calls it, it closes after the handler has returned."""
        self._is_closed = True
        self._ending.begin()
        if not (self._handling and self._handling.is_inside()):
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
                await self.hands.settle(None)
        await self.close()

    # -- receiving ---------------------------------------------------------------------------

    def __aiter__(self) -> Iteration:
        """Iterate over messages. Each is acknowledged when the loop asks for the next one, or when
        the consumer's block ends without an exception; after an exception it is redelivered."""
        self._check_hands()
        return Iteration(self, is_owner=not self._is_open)

    def batches(self, count_max: int = 100, *, within_s: float = 1.0) -> Batches:
        """Iterate with `async for` over lists of messages of all queues. A list ends when it is
        full, or `within_s` seconds after its first message. It is acknowledged when the loop asks
        for the next one, or when the consumer's block ends without an exception. After an exception
        it is redelivered, except messages that were settled with `ack()`, `retry()` or `reject()`.
        With `is_orderly`, a list has the available messages of one queue."""
        self._check_hands()
        return Batches(self, is_owner=not self._is_open, count_max=count_max, within_s=within_s)

    async def receive(
        self, count_max: int = 32, *, timeout_s: float | None = None
    ) -> list[Delivery]:
        """Return up to `count_max` messages of one queue as soon as there is one, or none after the
        timeout. Settle each with `ack()`, `retry()` or `reject()`."""
        found: list[Delivery] = []
        for message in await self.take(count_max, timeout_s=timeout_s):
            assert isinstance(message, Delivery)
            found.append(message)
        return found

    # -- topics ------------------------------------------------------------------------------

    async def subscribe(self, topic: str, *, tags: str = "", sql: str = "") -> None:
        """Subscribe to one more topic, or to other messages of a topic, as all members must."""
        self._check_usable()
        wanted = self._checked_subscription(topic, tags=tags, sql=sql)
        await self._check(wanted)
        self._add(wanted)
        await self.instance.presence.announce()
        with contextlib.suppress(RouteMissing, TransportError):
            await self.instance.route(wanted.topic)
        self._reading.balance.soon()

    async def unsubscribe(self, topic: str) -> None:
        """Stop reading a topic."""
        self._check_usable()
        wire_topic = self.instance.options.wrap(topic)
        if self._reading.subscriptions.pop(wire_topic, None) is None:
            raise UsageError(f"{topic!r} is not subscribed to; there is nothing to leave")
        self.instance.unwatch(wire_topic)
        self._reading.balance.soon()
        await self.instance.presence.announce()

    # -- queues ------------------------------------------------------------------------------

    async def queues(self) -> list[MessageQueue]:
        """Return the queues that this member reads now."""
        self._check_usable()
        unwrap = self.instance.options.unwrap
        retry_topic = self._reading.retry_topic()
        return sorted(
            MessageQueue(unwrap(queue.topic), queue.broker_name, queue.queue_id)
            for queue in self._reading.read_queues()
            if queue.topic != retry_topic
        )

    async def pause(self, *queues: MessageQueue) -> None:
        """Stop delivering messages of these queues, or of all queues if none are given."""
        self._pause(queues, is_paused=True)

    async def resume(self, *queues: MessageQueue) -> None:
        """Continue to deliver messages of these queues, or of all queues if none are given."""
        self._pause(queues, is_paused=False)

    async def seek(self, queue: MessageQueue, where: Where) -> None:
        """Continue elsewhere in a queue: at an offset, at the first message since a time (a
        datetime with a time zone), at the `first` message, or at the end (`last`)."""
        self._check_usable()
        reader = self._reading.reader_of(queue)
        reader.seek(await self._place(reader.queue, where))
        await self._reading.offsets.keep([reader])

    async def position(self, queue: MessageQueue) -> int:
        """Return the offset below which this member has settled every message of a queue."""
        self._check_usable()
        return self._reading.reader_of(queue).shelf.commit_offset

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's committed offset; None if there is none."""
        self._check_usable()
        return await self._reading.offsets.committed(self._reading.reader_of(queue).queue)

    async def commit(self) -> None:
        """Commit the offsets of settled messages immediately instead of at the next interval."""
        self._check_usable()
        await self._reading.keep_offsets()

    # -- for this room -----------------------------------------------------------------------

    async def take(self, count_max: int, *, timeout_s: float | None = None) -> list[HeldMessage]:
        """Return up to `count_max` undelivered messages of one queue; `receive` wraps this."""
        self._check_takes()
        return await self._reading.take(count_max, timeout_s=timeout_s)

    async def take_into(
        self, box: list[HeldMessage], count_max: int, *, timeout_s: float | None = None
    ) -> None:
        """Append the messages that `take` would return to the caller's list, so that a cancelled
        call loses none."""
        box += await self.take(count_max, timeout_s=timeout_s)

    async def advance(self, slot: Slot, count_max: int = 1, *, within_s: float = 0.0) -> bool:
        """Acknowledge the messages that the iteration delivered before, and fetch its next ones
        into `slot`. Return False when the consumer is closed."""
        await self.hands.empty(slot)
        try:
            self._check_takes()
            await self.hands.fill(slot, count_max, within_s=within_s)
        except ClientClosed:
            if self._is_closed:
                return False
            raise
        return bool(slot.arrived)

    def return_taken(self, messages: list[HeldMessage]) -> None:
        """Put back messages that were taken but reached no caller."""
        while messages:
            self._reading.return_taken(messages.pop())

    @property
    def is_closed(self) -> bool:
        """Whether the consumer was closed."""
        return self._is_closed

    # -- inside ------------------------------------------------------------------------------

    def _kind(self) -> type[HeldMessage]:
        """Return the class of deliveries. Plain handlers get one whose methods need no `await`."""
        handler = self.options.handler
        return Delivery if handler is None or is_coroutine(handler) else PlainDelivery

    def _caller(self) -> Caller:
        return LoopCaller(lambda: self.instance.loop)

    def _stamp(self, message: HeldMessage) -> None:
        """Set the portal of a blocking delivery, on which its methods run."""
        if isinstance(message, PlainDelivery):
            message.portal = self._calls

    def _kind_of_reading(self) -> type[Reading]:
        if self.options.mode != "pop":
            return Reading
        from escrowmq.client.popping import PopReading

        return PopReading

    def _subscribe_first(self) -> None:
        topics = check_topics(self.options.topics)
        if self.options.topic and self.options.topic in topics:
            raise UsageError(f"{self.options.topic!r} is given as topic= and in topics=")
        if self.options.topic:
            self._add(
                self._checked_subscription(
                    self.options.topic, tags=self.options.tags, sql=self.options.sql
                )
            )
        for topic, tags in topics.items():
            self._add(self._checked_subscription(topic, tags=tags, sql=""))
        for queue in self.options.queues:
            if self.instance.options.wrap(queue.topic) not in self._reading.subscriptions:
                self._add(self._checked_subscription(queue.topic, tags="", sql=""))
        if self.options.queues:
            return
        if not self.options.is_broadcasting and self.options.mode == "pull":
            self._add(Subscription(topic=self._reading.retry_topic(), version=self._version()))

    def _checked_subscription(self, topic: str, *, tags: str, sql: str) -> Subscription:
        check_topic(topic, instead="read another")
        return subscription(
            topic,
            tags=tags,
            sql=sql,
            version=self._version(),
            wire_topic=self.instance.options.wrap(topic),
        )

    def _version(self) -> int:
        return self.instance.clock.now_ms()

    def _add(self, wanted: Subscription) -> None:
        if wanted.topic not in self._reading.subscriptions:
            self.instance.watch(wanted.topic)
        self._reading.subscriptions[wanted.topic] = wanted

    async def _check(self, wanted: Subscription) -> None:
        """Ask a broker whether it accepts the filter expression. If no broker can be reached, a bad
        filter is noticed only while consuming."""
        if wanted.kind != SQL92:
            return
        body = CheckClientBody(
            client_id=self.instance.client_id,
            group=self.wire_group,
            namespace=self.instance.options.namespace or None,
            subscription_data=wanted.body(),
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

    def _body(self) -> ConsumerBody:
        start = self.options.consume_from
        from_where = {"first": "FIRST_OFFSET", "last": "LAST_OFFSET"}
        return ConsumerBody(
            group_name=self.wire_group,
            consume_type="CONSUME_PASSIVELY",
            message_model="BROADCASTING" if self.options.is_broadcasting else "CLUSTERING",
            consume_from_where="CONSUME_FROM_"
            + (from_where[start] if isinstance(start, str) else "TIMESTAMP"),
            subscription_data_set=[
                wanted.body() for wanted in self._reading.subscriptions.values()
            ],
        )

    def _check_usable(self) -> None:
        if self._is_closed:
            raise ClientClosed("the consumer is closed; make a new one")
        if not self._is_open:
            raise ClientClosed("the consumer is not open; use `async with`, or await its open()")
        self.instance.check_usable()

    def _check_takes(self) -> None:
        self._check_usable()
        self._check_hands()
        if not self._reading.has_topics:
            raise UsageError(
                "the consumer has no topic, so it would receive nothing; give it topic= or "
                "topics=, or call subscribe()"
            )

    def _check_hands(self) -> None:
        if self._handling is not None:
            raise UsageError("the consumer has a handler, which gets every message")

    def _pause(self, queues: Sequence[MessageQueue], *, is_paused: bool) -> None:
        self._check_usable()
        self._reading.pause(queues, is_paused=is_paused)

    async def _place(self, queue: MessageQueue, where: Where) -> int:
        if isinstance(where, dt.datetime):
            if where.tzinfo is None:
                raise UsageError(f"{where!r} has no time zone; give it one")
            return await self._bounds.at(queue, int(where.timestamp() * 1000))
        if where == "first":
            return await self._bounds.first(queue)
        if where == "last":
            return await self._bounds.end(queue)
        if where >= 0:
            return where
        raise UsageError(f"where={where!r}; an offset, a datetime, 'first' or 'last' is expected")

    async def _close(self) -> None:
        try:
            if self._is_open:
                await self._wind_up()
        finally:
            await self.instance.close()
            self._end.set()

    async def _wind_up(self) -> None:
        self._reading.stop()
        if self._handling is not None:
            await self._handling.close()
        with contextlib.suppress(EscrowMQError, TimeoutError):
            async with asyncio.timeout(_END_S):
                await self.hands.settle(BROKER_DECIDES)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await self._reading.balance.end()
        with contextlib.suppress(EscrowMQError, TimeoutError):
            async with asyncio.timeout(_END_S):
                await self._reading.leave()
                await self._reading.sharing.settle()
        if self._reading.watch.tracer is not None:
            await self._reading.watch.tracer.close()
        await self._producer.close()
