"""From a user's message to an answer: properties, interceptors, queue, sending, result."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Any, Final

from escrowmq.client.core.choice import queue_of_key
from escrowmq.client.core.message import Message
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.sending import (
    Compression,
    Outcome,
    Outgoing,
    SendResult,
    delay_properties,
    outgoing,
    outgoing_batch,
    properties_of,
    result_of,
    results_of_batch,
)
from escrowmq.client.core.unique import UniqueIds
from escrowmq.client.core.validation import check_message
from escrowmq.client.instance import Instance
from escrowmq.client.sender import Sender, SendRules, Sent
from escrowmq.client.settings import ProducerOptions
from escrowmq.errors import InvalidMessage, UsageError

_log = logging.getLogger(__name__)

INSTANCE_ID: Final = "INSTANCE_ID"
_ENTRY_SIZE: Final = 256
"""Bytes of an entry of a batch beside body, user's properties and keys; plenty."""


class Dispatch:
    """Sends for one producer group."""

    def __init__(self, instance: Instance, options: ProducerOptions, *, group: str) -> None:
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
            inflight_max=options.inflight_max,
            inflight_size_max=options.inflight_size_max,
        )
        self._sender = Sender(instance, rules)
        mark = instance.chance.getrandbits(32)
        self._ids = UniqueIds(host=instance.host, process=os.getpid(), mark=mark)

    def new_id(self) -> str:
        """An id that no other message has."""
        return self._ids.make(self._instance.clock.now_ms())

    def prepare(
        self,
        message: Message,
        extra: dict[str, str] | None = None,
        *,
        is_wrapped: bool = False,
    ) -> Outgoing:
        """The message as it goes over the wire, with properties beside the user's. `is_wrapped`
        says that its topic is the broker's name for it already."""
        check_message(message, body_size_max=self._options.body_size_max)
        if self._options.interceptors:
            self._tell_before(message)
        properties = properties_of(message, unique_key=self.new_id())
        options = self._instance.options
        if options.namespace and not options.is_namespace_v2:
            properties[INSTANCE_ID] = options.namespace
        if extra:
            properties.update(extra)
        return outgoing(
            message,
            properties,
            topic=message.topic if is_wrapped else options.wrap(message.topic),
            compression=self._compression,
            born_ms=self._instance.clock.now_ms(),
        )

    async def deliver(
        self,
        message: Message,
        out: Outgoing,
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
        may_repeat: bool = True,
    ) -> tuple[Sent, SendResult]:
        """Store it; the answer, and what it says."""
        try:
            if queue is not None and queue.topic != out.topic:
                queue = MessageQueue(out.topic, queue.broker_name, queue.queue_id)
            sent = await self._sender.send(
                out,
                timeout_ms=timeout_ms or self._options.timeout_ms,
                queue=queue,
                order_key=message.order_key,
                may_repeat=may_repeat,
            )
            result = result_of(
                sent.reply, sent.queue, unique_key=out.unique_key, topic=message.topic
            )
        except BaseException as error:
            self._tell_after(message, None, error)
            raise
        if self._options.interceptors:
            self._tell_after(message, result, None)
        return sent, result

    async def send_one_way(self, message: Message) -> str:
        """Hand it to the network; its id."""
        out = self.prepare(message)
        await self._sender.send_one_way(out, await self.choose_queue(message))
        return out.unique_key

    async def send_many(
        self, messages: Sequence[Message], timeout_ms: int | None
    ) -> list[SendResult]:
        """Store many with few requests; results in the messages' order."""
        groups: dict[tuple[str, str], list[int]] = {}
        for index, message in enumerate(messages):
            check_message(message, body_size_max=self._options.body_size_max)
            if delay_properties(message):
                raise InvalidMessage(
                    f"message {index} has a delay, which no batch can have; send it with send()"
                )
            groups.setdefault((message.topic, message.order_key), []).append(index)
        results: dict[int, SendResult] = {}
        for indexes in groups.values():
            for chunk in self._chunks(messages, indexes):
                stored = await self._send_batch([messages[index] for index in chunk], timeout_ms)
                results.update(zip(chunk, stored, strict=True))
        return [results[index] for index in range(len(messages))]

    async def choose_queue(self, message: Message, *, broker_name: str = "") -> MessageQueue:
        """The queue that a message is to go to; with a broker's name, one of that broker."""
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
        return self._sender.choose(queues)

    def tell_settled(
        self, transaction_id: str, outcome: Outcome, error: BaseException | None
    ) -> None:
        """Let interceptors know of the end of a transaction."""
        for each in self._options.interceptors:
            _safely(each.after_settle, transaction_id, outcome, error)

    # -- inside ------------------------------------------------------------------------------

    def _chunks(self, messages: Sequence[Message], indexes: Sequence[int]) -> list[list[int]]:
        """Indexes of messages that fit into one batch together."""
        chunks: list[list[int]] = []
        room = 0
        for index in indexes:
            message = messages[index]
            texts = [*message.properties, *message.properties.values(), *message.key_list]
            size = len(message.body) + _ENTRY_SIZE + 4 * sum(map(len, texts))
            if size > room or not chunks:
                chunks.append([])
                room = self._options.body_size_max
            room -= size
            chunks[-1].append(index)
        return chunks

    async def _send_batch(
        self, messages: Sequence[Message], timeout_ms: int | None
    ) -> list[SendResult]:
        for message in messages:
            self._tell_before(message)
        keys = [self.new_id() for _ in messages]
        topic = messages[0].topic
        out = outgoing_batch(
            list(zip(messages, keys, strict=True)),
            topic=self._instance.options.wrap(topic),
            unique_key=self.new_id(),
            born_ms=self._instance.clock.now_ms(),
        )
        try:
            sent = await self._sender.send(
                out,
                timeout_ms=timeout_ms or self._options.timeout_ms,
                order_key=messages[0].order_key,
            )
            whole = result_of(sent.reply, sent.queue, unique_key=out.unique_key, topic=topic)
        except BaseException as error:
            for message in messages:
                self._tell_after(message, None, error)
            raise
        results = results_of_batch(whole, keys)
        for message, result in zip(messages, results, strict=True):
            self._tell_after(message, result, None)
        return results

    def _tell_before(self, message: Message) -> None:
        interceptors = self._options.interceptors
        if interceptors:
            message.properties = dict(message.properties)
            for each in interceptors:
                _safely(each.before_send, message)
            check_message(message, body_size_max=self._options.body_size_max)

    def _tell_after(
        self, message: Message, result: SendResult | None, error: BaseException | None
    ) -> None:
        for each in self._options.interceptors:
            _safely(each.after_send, message, result, error)


def _safely(hook: Callable[..., object], *given: Any) -> None:  # noqa: ANN401
    try:
        hook(*given)
    except Exception:  # noqa: BLE001 - the user's code; logged
        _log.exception("an interceptor failed; the message goes on")
