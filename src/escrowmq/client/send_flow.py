"""Sends a user's message: makes its properties, calls interceptors, chooses the queue, sends it,
and returns the result."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from escrowmq.base.command import Command
from escrowmq.client.core.batch_cuts import batches_of
from escrowmq.client.core.message import Message
from escrowmq.client.core.queue_choice import queue_of_key
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.send_attempts import SendAnswer, SendRequest, SendRules
from escrowmq.client.core.sending import (
    Compression,
    Outgoing,
    SendResult,
    delay_properties,
    outgoing,
    outgoing_bare,
    outgoing_batch,
    properties_of,
    result_of,
    results_of_batch,
)
from escrowmq.client.core.unique_ids import UniqueIds
from escrowmq.client.core.validation import check_message
from escrowmq.client.instance import Instance
from escrowmq.client.interceptors import InterceptorCalls
from escrowmq.client.producer_settings import ProducerOptions
from escrowmq.client.sender import Answer, Begun, Sender
from escrowmq.errors import InvalidMessage, TransportError, UsageError

if TYPE_CHECKING:
    from escrowmq.client.portal import Finish

INSTANCE_ID: Final = "INSTANCE_ID"

T = TypeVar("T")


class SendDispatch:
    """Sends the messages of one producer group."""

    def __init__(self, instance: Instance, options: ProducerOptions, *, group: str) -> None:
        self.watch = InterceptorCalls(options.interceptors)
        self._instance = instance
        self._options = options
        self._compression = Compression(
            form=options.compression,
            over_size=options.compression_over_size,
            level=options.compression_level,
        )
        rules = SendRules(
            group=group,
            retries=options.retries,
            retries_unsafe=options.retries_unsafe,
            avoids_slow=options.avoids_slow,
            asks_safety=options.asks_safety,
            inflight_max=options.inflight_max,
            inflight_size_max=options.inflight_size_max,
        )
        self.sender = Sender(instance, rules)
        mark = instance.chance.getrandbits(32)
        self._ids = UniqueIds(host=instance.host, process=os.getpid(), mark=mark)

    def new_id(self) -> str:
        """Return a new unique message id."""
        return self._ids.make(self._instance.clock.now_ms())

    def prepare(
        self,
        message: Message,
        extra: dict[str, str] | None = None,
        *,
        is_wrapped: bool = False,
    ) -> Outgoing:
        """Return the message in wire format. `extra` are properties besides the user's.
        `is_wrapped` means that the message's topic is already the broker's name."""
        self.check(message)
        if not self.watch.interceptors:
            return self._outgoing(message, extra, is_wrapped)
        try:
            self._call_before_send([message])
            return self._outgoing(message, extra, is_wrapped)
        except BaseException as error:
            self.watch.after_send(message, None, error)
            raise

    def check(self, message: Message) -> None:
        """Raise InvalidMessage if no broker would accept the message."""
        check_message(message, body_size_max=self._options.body_size_max)

    def _outgoing(
        self, message: Message, extra: dict[str, str] | None, is_wrapped: bool
    ) -> Outgoing:
        now_ms = self._instance.clock.now_ms()
        options = self._instance.options
        unique_key = self._ids.make(now_ms)
        topic = message.topic if is_wrapped else options.wrap(message.topic)
        if not extra and not options.namespace:
            bare = outgoing_bare(
                message,
                unique_key=unique_key,
                topic=topic,
                compression=self._compression,
                born_ms=now_ms,
            )
            if bare is not None:
                return bare
        properties = properties_of(message, unique_key=unique_key)
        if options.namespace and not options.is_namespace_v2:
            properties[INSTANCE_ID] = options.namespace
        if extra:
            properties.update(extra)
        return outgoing(
            message,
            properties,
            topic=topic,
            compression=self._compression,
            born_ms=now_ms,
        )

    def begin(
        self,
        message: Message,
        *,
        queue: MessageQueue | None,
        timeout_ms: int | None,
        finish: Finish[SendResult],
    ) -> bool:
        """Send a message without waiting. Return False, having done nothing, if that is impossible.
        `finish` gets the result, the error, or a function that makes further attempts."""
        if self.watch:
            return False
        self.check(message)
        out = self._outgoing(message, None, False)
        sending = self._sending(message, out, queue=queue, timeout_ms=timeout_ms)

        def told(sent: SendAnswer) -> SendResult:
            return result_of(sent.reply, sent.queue, out, topic=message.topic)

        return self._begin(sending, told, finish)

    def begin_half(
        self,
        message: Message,
        extra: dict[str, str],
        *,
        finish: Finish[tuple[SendAnswer, SendResult]],
    ) -> str:
        """Send the only message of a transaction without waiting. Return its id, or an empty
        string, having done nothing, if that is impossible. `finish` gets the result, the error, or
        a function that makes further attempts."""
        if self.watch:
            return ""
        self.check(message)
        out = self._outgoing(message, extra, False)
        out.wants_id = True
        sending = self._sending(message, out, queue=None, timeout_ms=None)

        def told(sent: SendAnswer) -> tuple[SendAnswer, SendResult]:
            return sent, result_of(sent.reply, sent.queue, out, topic=message.topic)

        return out.unique_key if self._begin(sending, told, finish) else ""

    def _begin(
        self, sending: SendRequest, told: Callable[[SendAnswer], T], finish: Finish[T]
    ) -> bool:
        def done(reply: Command | None, error: TransportError | None) -> None:
            assert begun is not None
            try:
                answer = reply or error
                assert answer is not None
                sent = self.sender.end(sending, begun, answer)
                if sent is None:
                    go_on = functools.partial(self._go_on, sending, begun, answer, told)
                    finish(None, None, go_on)
                else:
                    finish(told(sent))
            except Exception as raised:  # noqa: BLE001 - raised again at the caller
                finish(None, raised)

        begun = self.sender.begin(sending, done)
        return begun is not None

    async def _go_on(
        self, sending: SendRequest, begun: Begun, answer: Answer, told: Callable[[SendAnswer], T]
    ) -> T:
        return told(await self.sender.go_on(sending, begun, answer))

    def _sending(
        self,
        message: Message,
        out: Outgoing,
        *,
        queue: MessageQueue | None,
        timeout_ms: int | None,
        may_repeat: bool = True,
    ) -> SendRequest:
        if queue is not None and queue.topic != out.topic:
            queue = MessageQueue(out.topic, queue.broker_name, queue.queue_id)
        return SendRequest(
            message=out,
            timeout_ms=timeout_ms or self._options.timeout_ms,
            queue=queue,
            order_key=message.order_key,
            may_repeat=may_repeat,
        )

    async def deliver(
        self,
        message: Message,
        out: Outgoing,
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
        may_repeat: bool = True,
    ) -> tuple[SendAnswer, SendResult]:
        """Store a message; return the broker's answer and the result for the user."""
        try:
            sent = await self.sender.send(
                self._sending(
                    message, out, queue=queue, timeout_ms=timeout_ms, may_repeat=may_repeat
                )
            )
            result = result_of(sent.reply, sent.queue, out, topic=message.topic)
        except BaseException as error:
            self.watch.after_send(message, None, error)
            raise
        if self.watch:
            self.report_sent(message, out, result, sent)
        return sent, result

    async def send_one_way(self, message: Message) -> str:
        """Write a message to the network, without waiting for an answer; return its id."""
        out = self.prepare(message)
        try:
            await self.sender.send_one_way(out, await self.choose_queue(message))
        except BaseException as error:
            self.watch.after_send(message, None, error)
            raise
        self.watch.after_send(message, None, None)
        return out.unique_key

    async def send_many(
        self, messages: Sequence[Message], timeout_ms: int | None
    ) -> list[SendResult]:
        """Store many messages with few requests; return their results in the same order."""
        groups: dict[tuple[str, str], list[int]] = {}
        for index, message in enumerate(messages):
            self.check(message)
            if delay_properties(message):
                raise InvalidMessage(
                    f"message {index} has a delay, which no batch can have; send it with send()"
                )
            groups.setdefault((message.topic, message.order_key), []).append(index)
        results: dict[int, SendResult] = {}
        for indexes in groups.values():
            for chunk in batches_of(messages, indexes, size_max=self._options.body_size_max):
                stored = await self._send_batch([messages[index] for index in chunk], timeout_ms)
                results.update(zip(chunk, stored, strict=True))
        return [results[index] for index in range(len(messages))]

    async def choose_queue(self, message: Message, *, broker_name: str = "") -> MessageQueue:
        """Choose the queue for a message; with `broker_name`, one on that broker."""
        queues = await self._instance.queues_to_write(self._instance.options.wrap(message.topic))
        if broker_name:
            queues = tuple(each for each in queues if each.broker_name == broker_name)
            if not queues:
                raise UsageError(
                    f"the topic {message.topic!r} has no queue on broker {broker_name}, where "
                    "the transaction began; create it there, or use two transactions"
                )
        if message.order_key:
            return queue_of_key(queues, message.order_key)
        return self.sender.choose(queues)

    # -- inside ------------------------------------------------------------------------------

    async def _send_batch(
        self, messages: Sequence[Message], timeout_ms: int | None
    ) -> list[SendResult]:
        topic = messages[0].topic
        try:
            self._call_before_send(messages, is_batch=True)
            keys = [self.new_id() for _ in messages]
            out = outgoing_batch(
                list(zip(messages, keys, strict=True)),
                topic=self._instance.options.wrap(topic),
                unique_key=self.new_id(),
                born_ms=self._instance.clock.now_ms(),
            )
            sent = await self.sender.send(
                self._sending(messages[0], out, queue=None, timeout_ms=timeout_ms)
            )
            whole = result_of(sent.reply, sent.queue, out, topic=topic)
        except BaseException as error:
            self.watch.after_send_many(messages, (), error)
            raise
        results = results_of_batch(whole, keys)
        self.watch.after_send_many(messages, results, None)
        for message, result in zip(messages, results, strict=True):
            self._trace(message, result, sent, out)
        return results

    def _call_before_send(self, messages: Sequence[Message], *, is_batch: bool = False) -> None:
        self.watch.before_send(messages, is_batch=is_batch)
        for message in messages:
            self.check(message)

    def report_sent(
        self,
        message: Message,
        out: Outgoing,
        result: SendResult | None,
        sent: SendAnswer | None,
        error: BaseException | None = None,
    ) -> None:
        """Report the result of a send to interceptors and the trace."""
        self.watch.after_send(message, result, error)
        if result is not None and sent is not None:
            self._trace(message, result, sent, out)

    def _trace(self, message: Message, result: SendResult, sent: SendAnswer, out: Outgoing) -> None:
        tracer = self.watch.tracer
        if tracer is not None:
            tracer.sent(message, result, sent=sent, born_ms=out.born_ms)
