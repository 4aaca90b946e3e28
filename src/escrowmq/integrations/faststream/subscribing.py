"""FastStream's subscriber: an `escrowmq.aio.Consumer` whose messages go to FastStream's
handlers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from faststream._internal.configs import SubscriberSpecificationConfig, SubscriberUsecaseConfig
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber import SubscriberSpecification, SubscriberUsecase
from faststream._internal.endpoint.utils import process_msg
from faststream.middlewares import AckPolicy
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, SubscriberSpec

from escrowmq.client.consumer import Consumer
from escrowmq.client.core.message import ReceivedMessage
from escrowmq.client.delivery import Delivery
from escrowmq.codec.hashes import java_hash
from escrowmq.errors import ClientClosed, EscrowMQError
from escrowmq.filter.tags import parse_tags
from escrowmq.integrations.faststream.message import (
    EscrowMQMessage,
    Raw,
    decode,
    decode_batch,
    is_undecided,
    parse,
    parse_batch,
)
from escrowmq.integrations.faststream.publishing import ReplyPublisher


class NotAcknowledged(EscrowMQError):
    """Raised if a handler ended without a decision about its message. The message is then
    redelivered."""


@dataclass(kw_only=True)
class SubscriberConfig(SubscriberUsecaseConfig):
    """A subscriber's settings."""

    topic: str
    group: str
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def count_max(self) -> int:
        """Limit of the messages that the handler gets in one call."""
        found: int = self.settings.get("batch_max", 1)
        return found

    def retry_delay_s(self, delivery: Delivery) -> float | None:
        """Return the delay in seconds before a message is redelivered; None for the broker's own
        back-off."""
        given = self.settings.get("retry_after_s", ())
        pauses = given if isinstance(given, Sequence) else (given,)
        return pauses[min(delivery.deliveries_before, len(pauses) - 1)] if pauses else None

    @property
    def ack_policy(self) -> AckPolicy:
        """The acknowledgement policy of the subscriber, its router or its broker. By default a
        failed message is redelivered."""
        for found in (self._ack_policy, self._outer_config.ack_policy):
            if found is not EMPTY:
                return found
        return AckPolicy.NACK_ON_ERROR


@dataclass(kw_only=True)
class SubscriberSpecConfig(SubscriberSpecificationConfig):
    """AsyncAPI settings of a subscriber."""

    topic: str


class SubscriberAsyncApi(SubscriberSpecification[Any, SubscriberSpecConfig]):
    """A subscriber's AsyncAPI page."""

    @property
    def channel_labels(self) -> list[str]:
        """Return the subscriber's topic, as the only channel."""
        return [self._topic]

    @property
    def _topic(self) -> str:
        return f"{self._outer_config.prefix}{self.config.topic}"

    def get_schema(self) -> dict[str, SubscriberSpec]:
        """Return the subscriber's part of the AsyncAPI specification; FastStream calls this."""
        payload = resolve_payloads(self.get_payloads())
        operation = Operation(
            message=Message(title=f"{self.name}:Message", payload=payload), bindings=None
        )
        return {
            self.name: SubscriberSpec(
                address=self._topic,
                description=self.description,
                operation=operation,
                bindings=None,
            )
        }


class EscrowMQSubscriber(SubscriberUsecase[Raw]):
    """Passes the messages of one topic to handlers, as one member of a consumer group."""

    _parse: ClassVar[Any] = staticmethod(parse)
    _decode: ClassVar[Any] = staticmethod(decode)

    def __init__(
        self, config: SubscriberConfig, specification: SubscriberAsyncApi, calls: Any
    ) -> None:
        config.parser, config.decoder = self._parse, self._decode
        super().__init__(config, specification, calls)
        self._config = config
        self._consumer: Consumer | None = None
        self._opening = asyncio.Lock()

    @property
    def topic(self) -> str:
        """The subscriber's topic, with the prefixes of routers."""
        return f"{self._outer_config.prefix}{self._config.topic}"

    @property
    def group(self) -> str:
        """The subscriber's consumer group."""
        return self._config.group

    def matches(self, topic: str, tag: str) -> bool:
        """Whether a message matches its topic and tags."""
        tags = parse_tags(self._config.settings.get("tags"), code_of=java_hash)
        return topic == self.topic and tags.matches(tag)

    # -- life --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start to consume."""
        await super().start()
        self._post_start()  # the first message may be here before the consumer is
        if self.calls:
            await self._get_consumer({"handler": self._handle})

    async def stop(self) -> None:
        """Stop: wait for running handlers, and leave other messages to other members."""
        async with self._opening:
            consumer, self._consumer = self._consumer, None
        try:
            if consumer is not None:
                await consumer.close()
        finally:
            await super().stop()

    async def _get_consumer(self, more: dict[str, Any]) -> Consumer:
        async with self._opening:
            if self._consumer is None:
                self._consumer = await self._open_consumer(more)
            return self._consumer

    async def _open_consumer(self, more: dict[str, Any]) -> Consumer:
        config = self._outer_config
        settings = {
            "interceptors": config.interceptors,
            **config.connection,
            **self._config.settings,
            **more,
        }
        if config.graceful_timeout is not None:
            settings.setdefault("close_timeout_ms", max(1, int(config.graceful_timeout * 1000)))
        consumer = Consumer(config.name_servers, group=self.group, topic=self.topic, **settings)
        try:
            await consumer.open()
        except BaseException:  # cancelled, too: nothing else would close it
            await consumer.close()
            raise
        return consumer

    async def _handle(self, given: Delivery | list[Delivery]) -> None:
        deliveries = given if isinstance(given, list) else [given]
        await self.consume(self.handler_argument(deliveries))
        if any(map(is_undecided, deliveries)):
            raise NotAcknowledged(
                "the handler raised, nacked its message, or did not decide (ack_policy "
                f"{self.ack_policy.name})"
            )

    def handler_argument(self, received: Sequence[ReceivedMessage]) -> Raw:
        """Return the handler's argument for received messages: the only one of them."""
        (only,) = received
        return only

    # -- messages one by one -----------------------------------------------------------------

    async def get_one(self, *, timeout: float = 5.0) -> EscrowMQMessage | None:
        """Return the next message, or None after the timeout. Settle it with `ack()` and so on."""
        consumer = await self._get_reader()
        found = await consumer.receive(self._config.count_max, timeout_s=timeout)
        return await self._parse_by_middlewares(self.handler_argument(found)) if found else None

    async def __aiter__(self) -> AsyncIterator[EscrowMQMessage]:
        consumer = await self._get_reader()
        async for delivery in consumer:
            yield await self._parse_by_middlewares(delivery)

    async def _get_reader(self) -> Consumer:
        assert not self.calls, "messages go to the subscriber's handlers; give them another one"
        return await self._get_consumer({})

    async def _parse_by_middlewares(self, raw: Raw) -> EscrowMQMessage:
        context = self._outer_config.context
        parser, decoder = self._get_parser_and_decoder()
        message = await process_msg(
            msg=raw,
            middlewares=(made(raw, context=context) for made in self._broker_middlewares),
            parser=parser,
            decoder=decoder,
        )
        assert isinstance(message, EscrowMQMessage)
        message.mark_taken(self._config.retry_delay_s)
        return message

    # -- what FastStream asks ----------------------------------------------------------------

    def _make_response_publisher(self, message: Any) -> Iterable[ReplyPublisher]:
        producer = self._outer_config.producer
        return (ReplyPublisher(producer=producer, request=message.raw_message),)

    def get_log_context(self, message: Any) -> dict[str, str]:
        """Return the fields for each log line about a message."""
        return {
            "topic": self.topic,
            "group": self.group,
            "message_id": getattr(message, "message_id", ""),
        }


class EscrowMQBatchSubscriber(EscrowMQSubscriber):
    """Passes several messages at a time, as a list."""

    _parse: ClassVar[Any] = staticmethod(parse_batch)
    _decode: ClassVar[Any] = staticmethod(decode_batch)

    def handler_argument(self, received: Sequence[ReceivedMessage]) -> Raw:
        """Return the handler's argument for received messages: all of them."""
        return tuple(received)

    async def __aiter__(self) -> AsyncIterator[EscrowMQMessage]:
        consumer = await self._get_reader()
        while not consumer.is_closed:
            found: list[Delivery] = []
            with contextlib.suppress(ClientClosed):
                found = await consumer.receive(self._config.count_max)
            if found:
                message = await self._parse_by_middlewares(self.handler_argument(found))
                yield message
                with contextlib.suppress(ClientClosed):  # closed meanwhile: the batch comes again
                    await message.ack()  # as a single one is when the next is asked for
