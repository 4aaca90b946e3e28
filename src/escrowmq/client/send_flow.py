"""Sends a user's message: makes its properties, calls interceptors, chooses the queue, sends it,
and returns the result."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from escrowmq.base.command import Command
from escrowmq.client.core.batch_cuts import split_into_batches
from escrowmq.client.core.message import Message
from escrowmq.client.core.queue_choice import queue_of_key
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.send_attempts import SendAnswer, SendRequest, SendRules
from escrowmq.client.core.sending import (
    Compression,
    OutgoingMessage,
    SendResult,
    delay_properties,
    make_bare_outgoing,
    make_outgoing,
    make_outgoing_batch,
    parse_send_result,
    properties_of,
    split_batch_result,
)
from escrowmq.client.core.unique_ids import UniqueIds
from escrowmq.client.core.validation import check_message
from escrowmq.client.instance import ClientInstance
from escrowmq.client.interceptors import InterceptorCalls
from escrowmq.client.producer_settings import ProducerOptions
from escrowmq.client.sender import AttemptResult, AttemptSender, FirstAttempt
from escrowmq.errors import InvalidMessage, TransportError, UsageError

if TYPE_CHECKING:
    from escrowmq.client.portal import FinishCallback

INSTANCE_ID: Final = "INSTANCE_ID"

T = TypeVar("T")


class SendDispatch:
    """Sends the messages of one producer group."""

    def __init__(self, instance: ClientInstance, options: ProducerOptions, *, group: str) -> None:
        self.interceptor_calls = InterceptorCalls(options.interceptors)
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
        self.sender = AttemptSender(instance, rules)
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
    ) -> OutgoingMessage:
        """Return the message in wire format. `extra` are properties besides the user's.
        `is_wrapped` means that the message's topic is already the broker's name."""
        self.validate(message)
        if not self.interceptor_calls.interceptors:
            return self._encode(message, extra, is_wrapped)
        try:
            self._call_before_send([message])
            return self._encode(message, extra, is_wrapped)
        except BaseException as error:
            self.interceptor_calls.after_send(message, None, error)
            raise

    def validate(self, message: Message) -> None:
        """Raise InvalidMessage if no broker would accept the message."""
        check_message(message, body_size_max=self._options.body_size_max)

    def _encode(
        self, message: Message, extra: dict[str, str] | None, is_wrapped: bool
    ) -> OutgoingMessage:
        now_ms = self._instance.clock.now_ms()
        options = self._instance.options
        unique_key = self._ids.make(now_ms)
        topic = message.topic if is_wrapped else options.with_namespace(message.topic)
        if not extra and not options.namespace:
            bare = make_bare_outgoing(
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
        return make_outgoing(
            message,
            properties,
            topic=topic,
            compression=self._compression,
            born_ms=now_ms,
        )

    def try_send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None,
        timeout_ms: int | None,
        finish: FinishCallback[SendResult],
    ) -> bool:
        """Send a message without waiting. Return False, having done nothing, if that is impossible.
        `finish` gets the result, the error, or a function that makes further attempts."""
        if self.interceptor_calls:
            return False
        self.validate(message)
        out = self._encode(message, None, False)
        sending = self._make_request(message, out, queue=queue, timeout_ms=timeout_ms)

        def to_result(sent: SendAnswer) -> SendResult:
            return parse_send_result(sent.reply, sent.queue, out, topic=message.topic)

        return self._try_send_request(sending, to_result, finish)

    def try_send_half(
        self,
        message: Message,
        extra: dict[str, str],
        *,
        finish: FinishCallback[tuple[SendAnswer, SendResult]],
    ) -> str:
        """Send the only message of a transaction without waiting. Return its id, or an empty
        string, having done nothing, if that is impossible. `finish` gets the result, the error, or
        a function that makes further attempts."""
        if self.interceptor_calls:
            return ""
        self.validate(message)
        out = self._encode(message, extra, False)
        out.wants_id = True
        sending = self._make_request(message, out, queue=None, timeout_ms=None)

        def to_result(sent: SendAnswer) -> tuple[SendAnswer, SendResult]:
            return sent, parse_send_result(sent.reply, sent.queue, out, topic=message.topic)

        return out.unique_key if self._try_send_request(sending, to_result, finish) else ""

    def _try_send_request(
        self, sending: SendRequest, convert: Callable[[SendAnswer], T], finish: FinishCallback[T]
    ) -> bool:
        def on_answer(reply: Command | None, error: TransportError | None) -> None:
            assert begun is not None
            try:
                answer = reply or error
                assert answer is not None
                sent = self.sender.end_first_attempt(sending, begun, answer)
                if sent is None:
                    go_on = functools.partial(
                        self._continue_attempts, sending, begun, answer, convert
                    )
                    finish(None, None, go_on)
                else:
                    finish(convert(sent))
            except Exception as raised:  # noqa: BLE001 - raised again at the caller
                finish(None, raised)

        begun = self.sender.begin_first_attempt(sending, on_answer)
        return begun is not None

    async def _continue_attempts(
        self,
        sending: SendRequest,
        begun: FirstAttempt,
        answer: AttemptResult,
        convert: Callable[[SendAnswer], T],
    ) -> T:
        return convert(await self.sender.continue_attempts(sending, begun, answer))

    def _make_request(
        self,
        message: Message,
        out: OutgoingMessage,
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

    async def send_prepared(
        self,
        message: Message,
        out: OutgoingMessage,
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
        may_repeat: bool = True,
    ) -> tuple[SendAnswer, SendResult]:
        """Store a message; return the broker's answer and the result for the user."""
        try:
            sent = await self.sender.send(
                self._make_request(
                    message, out, queue=queue, timeout_ms=timeout_ms, may_repeat=may_repeat
                )
            )
            result = parse_send_result(sent.reply, sent.queue, out, topic=message.topic)
        except BaseException as error:
            self.interceptor_calls.after_send(message, None, error)
            raise
        if self.interceptor_calls:
            self.report_sent(message, out, result, sent)
        return sent, result

    async def send_one_way(self, message: Message) -> str:
        """Write a message to the network, without waiting for an answer; return its id."""
        out = self.prepare(message)
        try:
            await self.sender.send_one_way(out, await self.choose_queue(message))
        except BaseException as error:
            self.interceptor_calls.after_send(message, None, error)
            raise
        self.interceptor_calls.after_send(message, None, None)
        return out.unique_key

    async def send_many(
        self, messages: Sequence[Message], timeout_ms: int | None
    ) -> list[SendResult]:
        """Store many messages with few requests; return their results in the same order."""
        groups: dict[tuple[str, str], list[int]] = {}
        for index, message in enumerate(messages):
            self.validate(message)
            if delay_properties(message):
                raise InvalidMessage(
                    f"message {index} has a delay, which no batch can have; send it with send()"
                )
            groups.setdefault((message.topic, message.order_key or ""), []).append(index)
        results: dict[int, SendResult] = {}
        for indexes in groups.values():
            for chunk in split_into_batches(
                messages, indexes, size_max=self._options.body_size_max
            ):
                stored = await self._send_batch([messages[index] for index in chunk], timeout_ms)
                results.update(zip(chunk, stored, strict=True))
        return [results[index] for index in range(len(messages))]

    async def choose_queue(self, message: Message, *, broker_name: str = "") -> MessageQueue:
        """Choose the queue for a message; with `broker_name`, one on that broker."""
        queues = await self._instance.queues_to_write(
            self._instance.options.with_namespace(message.topic)
        )
        if broker_name:
            queues = tuple(each for each in queues if each.broker_name == broker_name)
            if not queues:
                raise UsageError(
                    f"the topic {message.topic!r} has no queue on broker {broker_name}, where "
                    "the transaction began; create it there, or use two transactions"
                )
        if message.order_key:
            return queue_of_key(queues, message.order_key)
        return self.sender.choose_queue(queues)

    # -- inside ------------------------------------------------------------------------------

    async def _send_batch(
        self, messages: Sequence[Message], timeout_ms: int | None
    ) -> list[SendResult]:
        topic = messages[0].topic
        try:
            self._call_before_send(messages, is_batch=True)
            keys = [self.new_id() for _ in messages]
            out = make_outgoing_batch(
                list(zip(messages, keys, strict=True)),
                topic=self._instance.options.with_namespace(topic),
                unique_key=self.new_id(),
                born_ms=self._instance.clock.now_ms(),
            )
            sent = await self.sender.send(
                self._make_request(messages[0], out, queue=None, timeout_ms=timeout_ms)
            )
            whole = parse_send_result(sent.reply, sent.queue, out, topic=topic)
        except BaseException as error:
            self.interceptor_calls.after_send_many(messages, (), error)
            raise
        results = split_batch_result(whole, keys)
        self.interceptor_calls.after_send_many(messages, results, None)
        for message, result in zip(messages, results, strict=True):
            self._trace_sent(message, result, sent, out)
        return results

    def _call_before_send(self, messages: Sequence[Message], *, is_batch: bool = False) -> None:
        self.interceptor_calls.before_send(messages, is_batch=is_batch)
        for message in messages:
            self.validate(message)

    def report_sent(
        self,
        message: Message,
        out: OutgoingMessage,
        result: SendResult | None,
        sent: SendAnswer | None,
        error: BaseException | None = None,
    ) -> None:
        """Report the result of a send to interceptors and the trace."""
        self.interceptor_calls.after_send(message, result, error)
        if result is not None and sent is not None:
            self._trace_sent(message, result, sent, out)

    def _trace_sent(
        self, message: Message, result: SendResult, sent: SendAnswer, out: OutgoingMessage
    ) -> None:
        tracer = self.interceptor_calls.tracer
        if tracer is not None:
            tracer.record_sent(message, result, sent=sent, born_ms=out.born_ms)
