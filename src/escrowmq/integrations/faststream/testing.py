"""Tests FastStream's handlers without a broker: messages reach handlers immediately."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from faststream._internal.testing.broker import TestBroker, change_producer
from faststream.exceptions import SubscriberNotFound

from escrowmq.base.message import Property
from escrowmq.client.core.message import ReceivedMessage
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.sending import SendResult, SendStatus
from escrowmq.client.core.validation import check_message
from escrowmq.client.made_deliveries import aio_delivery
from escrowmq.integrations.faststream.broker import EscrowMQBroker
from escrowmq.integrations.faststream.publishing import (
    EscrowMQPublishCommand,
    EscrowMQPublisher,
    ProducerAdapter,
)
from escrowmq.integrations.faststream.subscribing import (
    EscrowMQBatchSubscriber,
    EscrowMQSubscriber,
)

_ANY_SIZE: Final = 2**63
"""A size limit that never applies: only brokers limit the size of bodies."""


class TestEscrowMQBroker(TestBroker[EscrowMQBroker, Any], broker=EscrowMQBroker):  # type: ignore[call-arg]
    """Passes messages to the handlers of their topic and tags in this process, immediately;
    `publish` raises a handler's exceptions. SQL92 filters, delays and retries need a broker: use
    `with_real=True` and the fixture `escrowmq_broker`."""

    def create_publisher_fake_subscriber(
        self, broker: EscrowMQBroker, publisher: EscrowMQPublisher
    ) -> tuple[EscrowMQSubscriber, bool]:
        """Return the subscriber that records a publisher's messages, and whether it is one of the
        user's own."""
        for found in _subscribers(self.brokers):
            if found.matches(publisher.topic, publisher.tag):
                return found, True
        group = f"test-{publisher.topic}-{publisher.tag}-{len(self._fake_subscribers)}"
        return broker.subscriber(publisher.topic, group, persistent=False), False

    async def _fake_connect(self, broker: EscrowMQBroker, *args: Any, **more: Any) -> Any:
        return None

    @contextmanager
    def _patch_producer(self, broker: EscrowMQBroker) -> Iterator[None]:
        with change_producer(broker.config.broker_config, _InProcessProducer(broker, self.brokers)):
            yield


class _InProcessProducer(ProducerAdapter):
    """Passes messages to subscribers instead of a broker."""

    def __init__(self, broker: EscrowMQBroker, brokers: Sequence[EscrowMQBroker]) -> None:
        super().__init__(parser=broker._parser, decoder=broker._decoder)
        config = broker.config
        self.connect(None, serializer=config.fd_config._serializer, codec=config.broker_codec)
        self._brokers = brokers
        self._count = 0

    async def publish(self, cmd: EscrowMQPublishCommand) -> SendResult:
        """Pass the message to all matching subscribers."""
        message = await self._make_received(cmd)
        for found in _subscribers(self._brokers):
            if cmd.request is None and found.matches(message.topic, message.tag):
                await found.process_message(
                    found.handler_argument([_make_delivery(message, found)])
                )
        queue = MessageQueue(message.topic, "test", 0)
        return SendResult(
            status=SendStatus.OK, message_id=message.message_id, queue=queue, offset=self._count
        )

    async def request(self, cmd: EscrowMQPublishCommand) -> ReceivedMessage:
        """Pass the message to the first matching subscriber, and return its reply."""
        message = await self._make_received(cmd)
        message.system[Property.REPLY_TO_CLIENT] = "test"
        for found in _subscribers(self._brokers):
            answers = not isinstance(found, EscrowMQBatchSubscriber)
            if answers and found.matches(message.topic, message.tag):
                result = await found.process_message(
                    found.handler_argument([_make_delivery(message, found)])
                )
                reply = EscrowMQPublishCommand.from_cmd(result.as_publish_command())
                reply.destination = message.topic
                return await self._make_received(reply)
        raise SubscriberNotFound

    async def _make_received(self, cmd: EscrowMQPublishCommand) -> ReceivedMessage:
        message = await self.make_message(cmd)
        check_message(message, body_size_max=_ANY_SIZE)
        self._count += 1
        return ReceivedMessage(
            topic=message.topic,
            body=message.body,
            tag=message.tag,
            keys=message.key_list,
            properties=message.properties,
            order_key=message.order_key,
            message_id=f"{self._count:032X}",
            system={},
        )


def _make_delivery(message: ReceivedMessage, subscriber: EscrowMQSubscriber) -> ReceivedMessage:
    """Make a delivery as the subscriber's consumer would: for its group, not settled yet."""
    found = aio_delivery(
        message.topic,
        message.body,
        group=subscriber.group,
        tag=message.tag,
        keys=message.key_list,
        properties=message.properties,
        order_key=message.order_key,
        message_id=message.message_id,
    )
    found.system.update(message.system)
    return found


def _subscribers(brokers: Sequence[EscrowMQBroker]) -> Iterator[EscrowMQSubscriber]:
    for broker in brokers:
        for found in broker.subscribers:
            assert isinstance(found, EscrowMQSubscriber)
            yield found
