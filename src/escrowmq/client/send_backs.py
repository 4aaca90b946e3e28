"""Returns failed messages to the broker, which redelivers them later. If no broker takes them back,
or the retries of the group are not read, they are redelivered from memory."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from escrowmq.base.codes import Request
from escrowmq.base.delay_levels import DELAY_LEVELS_S, RETRY_FIRST_LEVEL
from escrowmq.base.fixed_limits import INT_MAX
from escrowmq.base.message import Property, Topic
from escrowmq.client.core.message import Message
from escrowmq.client.core.redelivery import NEVER
from escrowmq.client.delivery import HeldMessage
from escrowmq.client.inbox import Inbox
from escrowmq.client.instance import ClientInstance
from escrowmq.client.orderly_batch import generation_of, next_attempt
from escrowmq.client.producer import Producer
from escrowmq.client.queue_fetcher import QueueFetcher
from escrowmq.errors import EscrowMQError

_log = logging.getLogger(__name__)

_TIMEOUT_MS: Final = 5_000

_OF_REQUESTS: Final = (
    Property.CORRELATION_ID, Property.REPLY_TO_CLIENT, Property.TTL, Property.CLUSTER,
)  # fmt: skip
"""Properties by which a consumer can reply to a message."""


class SendBacks:
    """Returns failed messages of one consumer group to brokers."""

    def __init__(self, instance: ClientInstance, producer: Producer, *, group: str) -> None:
        self._instance = instance
        self._producer = producer
        self._group = group

    async def send_back(self, message: HeldMessage, *, level: int, attempts_max: int) -> bool:
        """Have a message redelivered after a delay level (0: the broker's back-off, -1: dead
        letter); return whether a broker accepted it."""
        topic = self._instance.options.with_namespace(message.topic)
        try:
            await self._instance.ask(
                self._instance.address_of(message.broker_name),
                Request.CONSUMER_SEND_MSG_BACK,
                {
                    "offset": str(message.log_offset),
                    "group": self._group,
                    "delayLevel": str(level),
                    "originMsgId": message.offset_id,
                    "originTopic": topic,
                    "unitMode": "false",
                    "maxReconsumeTimes": str(attempts_max),
                    "bname": message.broker_name,
                },
                timeout_ms=_TIMEOUT_MS,
            )
        except EscrowMQError as error:
            _log.warning(
                "%s of %s cannot be returned to its broker: %s; it is sent as a new message",
                message.message_id, message.queue, error,
            )  # fmt: skip
            return await self._send_to_retry_topic(message, level=level, attempts_max=attempts_max)
        return True

    async def _send_to_retry_topic(
        self, message: HeldMessage, *, level: int, attempts_max: int
    ) -> bool:
        """Send the message to the group's retry topic on any broker, because its own broker is
        unreachable. RocketMQ's clients do the same."""
        failed_count = message.deliveries_before + 1
        is_over = level == NEVER
        if is_over:
            # With more failures than allowed, the broker moves the message to the dead letters.
            failed_count = min(attempts_max + 1, INT_MAX)
            attempts_max = failed_count - 1
        delay = level or min(RETRY_FIRST_LEVEL + message.deliveries_before, len(DELAY_LEVELS_S))
        extra = {
            Property.RETRY_TOPIC: self._instance.options.with_namespace(message.topic),
            Property.ORIGIN_MESSAGE_ID: message.system.get(
                Property.ORIGIN_MESSAGE_ID, message.offset_id
            ),
            Property.UNIQ_KEY: message.message_id,
            Property.RECONSUME_TIME: str(failed_count),
            Property.MAX_RECONSUME_TIMES: str(attempts_max),
        }
        if not is_over:
            extra[Property.DELAY] = str(delay)
        extra |= {name: message.system[name] for name in _OF_REQUESTS if name in message.system}
        again = Message(
            Topic.RETRY_PREFIX + self._group,
            message.body,
            tag=message.tag,
            keys=message.keys,
            properties=message.properties,
            order_key=message.order_key,
            flag=message.flag,
        )
        try:
            dispatch = self._producer.dispatch
            out = dispatch.prepare(again, extra, is_wrapped=True)
            await dispatch.send_prepared(again, out)
        except EscrowMQError as error:
            _log.warning("%s cannot be sent as a new message: %s", message.message_id, error)
            return False
        return True


class LocalRedeliveries:
    """The messages of one consumer that are redelivered from memory. Each has a timer and no task:
    they may be as many as the consumer holds, and a client may have fewer tasks than that."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._timers: set[asyncio.TimerHandle] = set()
        self._is_over = False

    def schedule(self, message: HeldMessage, reader: QueueFetcher, after_s: float) -> None:
        """Put a message back into its queue after a time, as an attempt of its own."""
        if self._is_over:
            return  # it stays unsettled, so that the member that reads the queue next gets it
        again = next_attempt(message)

        def put_back() -> None:
            self._timers.discard(timer)
            reader.put_back([again], generation_of(again))
            self._inbox.add_source(reader)

        timer = asyncio.get_running_loop().call_later(after_s, put_back)
        self._timers.add(timer)

    def cancel_all(self) -> None:
        """Redeliver nothing any more, because the consumer closes."""
        self._is_over = True
        while self._timers:
            self._timers.pop().cancel()
