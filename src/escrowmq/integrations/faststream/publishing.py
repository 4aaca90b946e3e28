"""Publishing: by the broker, by a handler's return value, and as a reply."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Self, Unpack

from faststream._internal.configs import PublisherSpecificationConfig, PublisherUsecaseConfig
from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream.exceptions import FeatureNotSupportedException, IncorrectState
from faststream.response import PublishCommand, Response
from faststream.response.publish_type import PublishType
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message as MessageSchema
from faststream.specification.schema import Operation, PublisherSpec

from escrowmq.client.core.message import Message, ReceivedMessage
from escrowmq.client.core.sending import SendResult
from escrowmq.client.producer import Producer
from escrowmq.client.producer_settings import MessageFields
from escrowmq.integrations.faststream.message import CONTENT_TYPE, CORRELATION_ID, decode, parse

_NOTHING: Final = (b"null", "application/json")
"""The body that is sent for None, because no broker accepts an empty body."""


class EscrowMQPublishCommand(PublishCommand):
    """A publish command of FastStream, with `fields` of `Message`. It passes through the
    publishers' middlewares."""

    def __init__(
        self,
        body: Any,
        *,
        topic: str = "",
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        timeout_ms: int | None = None,
        fields: MessageFields | None = None,
        _publish_type: PublishType,
    ) -> None:
        super().__init__(
            body,
            destination=topic,
            headers=headers,
            correlation_id=correlation_id,
            reply_to=reply_to,
            _publish_type=_publish_type,
        )
        self.timeout_ms = timeout_ms
        self.fields: MessageFields = fields or {}
        self.request: ReceivedMessage | None = None
        """The message to which this one replies."""

    @classmethod
    def from_cmd(cls, cmd: PublishCommand) -> Self:
        """Convert a command of FastStream to ours."""
        if isinstance(cmd, cls):
            return cmd
        return cls(
            cmd.body,
            topic=cmd.destination,
            headers=cmd.headers,
            correlation_id=cmd.correlation_id,
            reply_to=cmd.reply_to,
            _publish_type=cmd.publish_type,
        )


class EscrowMQResponse(Response):
    """A handler's return value that sets more than a body: headers, a tag, keys, a delay, as in
    `Message`."""

    def __init__(
        self,
        body: Any,
        *,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        **fields: Unpack[MessageFields],
    ) -> None:
        super().__init__(body, headers=headers, correlation_id=correlation_id)
        self.fields = fields

    def as_publish_command(self) -> EscrowMQPublishCommand:
        """Return the command that sends this response; FastStream calls this."""
        return EscrowMQPublishCommand(
            self.body,
            headers=self.headers,
            correlation_id=self.correlation_id,
            fields=self.fields,
            _publish_type=PublishType.PUBLISH,
        )


class ProducerAdapter(ProducerProto[EscrowMQPublishCommand]):
    """FastStream's producer interface, implemented with an `escrowmq.aio.Producer`."""

    def __init__(self, *, parser: Any = None, decoder: Any = None) -> None:
        self._parser = ParserComposition(parser, parse)
        self._decoder = ParserComposition(decoder, decode)
        self.codec: Any = DefaultCodec()
        self._serializer: Any = None
        self._producer: Producer | None = None

    def connect(self, producer: Producer | None, *, serializer: Any = None, codec: Any) -> None:
        """Send with this producer from now on; None stops sending."""
        self._producer, self._serializer = producer, serializer
        self.codec = codec or DefaultCodec()

    async def make_message(self, cmd: EscrowMQPublishCommand) -> Message:
        """Make the message that the command describes."""
        body, content_type = _NOTHING
        if cmd.body is not None:
            body, content_type = await self.codec.encode(cmd.body, self._serializer)
        properties = {name: str(value) for name, value in cmd.headers.items()}
        if content_type:
            properties.setdefault(CONTENT_TYPE, content_type)
        if cmd.correlation_id:
            properties.setdefault(CORRELATION_ID, cmd.correlation_id)
        fields: dict[str, Any] = {**cmd.fields}
        properties |= fields.pop("properties", {})
        return Message(cmd.destination, body, properties=properties, **fields)

    async def publish(self, cmd: EscrowMQPublishCommand) -> SendResult:
        """Send the message; if it answers a request, send it as the reply."""
        message = await self.make_message(cmd)
        if cmd.request is not None:
            properties = message.properties
            return await self.producer.reply(cmd.request, message.body, properties=properties)
        return await self.producer.send(message)

    async def request(self, cmd: EscrowMQPublishCommand) -> ReceivedMessage:
        """Send the message and wait for a reply."""
        message = await self.make_message(cmd)
        return await self.producer.request(message, timeout_ms=cmd.timeout_ms)

    async def publish_batch(self, cmd: EscrowMQPublishCommand) -> Any:
        """Raise: use `broker.producer.send_many`, which takes messages."""
        raise FeatureNotSupportedException("publish each message, or use broker.producer.send_many")

    @property
    def producer(self) -> Producer:
        """Return the producer; raises if the broker is not connected."""
        if self._producer is None:
            raise IncorrectState(
                "the broker is not connected: await broker.connect() or broker.start(), or run it "
                "in an application"
            )
        return self._producer


class PublishMethods:
    """The publish methods of brokers and publishers."""

    async def publish(
        self,
        message: Any = None,
        topic: str = "",
        *,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        **fields: Unpack[MessageFields],
    ) -> SendResult:
        """Send a message; for a publisher, optionally to another topic than its own. `headers`
        become its properties, and `fields` are those of `Message`: `tag`, `keys`, `order_key`,
        ..."""
        command = EscrowMQPublishCommand(
            message,
            topic=topic,
            headers=headers,
            correlation_id=correlation_id or self._new_id(),
            fields=fields,
            _publish_type=PublishType.PUBLISH,
        )
        sent: SendResult = await self._publish(command, _extra_middlewares=())
        return sent

    async def request(
        self,
        message: Any = None,
        topic: str = "",
        *,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> Any:
        """Send a message like `publish`, and wait for a handler's reply. Raises ReplyTimeout if it
        takes too long."""
        command = EscrowMQPublishCommand(
            message,
            topic=topic,
            headers=headers,
            correlation_id=correlation_id or self._new_id(),
            timeout_ms=timeout_ms,
            fields=fields,
            _publish_type=PublishType.REQUEST,
        )
        return await self._request(command)

    def _new_id(self) -> str:
        raise NotImplementedError

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[Any]) -> Any:
        raise NotImplementedError

    async def _request(self, cmd: EscrowMQPublishCommand) -> Any:
        raise NotImplementedError


class ReplyPublisher(FakePublisher):
    """Sends a handler's return value as the reply to a request."""

    def __init__(self, *, producer: Any, request: ReceivedMessage) -> None:
        super().__init__(producer=producer)
        self._request = request

    def patch_command(self, cmd: PublishCommand) -> EscrowMQPublishCommand:
        """Turn the command into a reply."""
        reply = EscrowMQPublishCommand.from_cmd(super().patch_command(cmd))
        reply.request = self._request
        reply.destination = self._request.topic
        return reply


@dataclass(kw_only=True)
class PublisherConfig(PublisherUsecaseConfig):
    """A publisher's settings."""

    topic: str
    headers: dict[str, str] = field(default_factory=dict)
    fields: MessageFields = field(default_factory=MessageFields)


@dataclass(kw_only=True)
class PublisherSpecConfig(PublisherSpecificationConfig):
    """AsyncAPI settings of a publisher."""

    topic: str


class PublisherAsyncApi(PublisherSpecification[Any, PublisherSpecConfig]):
    """A publisher's AsyncAPI page."""

    @property
    def name(self) -> str:
        """The publisher's name in the AsyncAPI specification: its title, or one made of its
        topic."""
        return self.config.title_ or f"{self._topic}:Publisher"

    @property
    def _topic(self) -> str:
        return f"{self._outer_config.prefix}{self.config.topic}"

    def get_schema(self) -> dict[str, PublisherSpec]:
        """Return the publisher's part of the AsyncAPI specification; FastStream calls this."""
        payload = resolve_payloads(self.get_payloads(), "Publisher")
        operation = Operation(
            message=MessageSchema(title=f"{self.name}:Message", payload=payload), bindings=None
        )
        return {
            self.name: PublisherSpec(
                address=self._topic,
                description=self.config.description_,
                operation=operation,
                bindings=None,
            )
        }


class EscrowMQPublisher(PublishMethods, PublisherUsecase):
    """Publishes a handler's return value, or a given message."""

    def __init__(self, config: PublisherConfig, specification: PublisherAsyncApi) -> None:
        super().__init__(config, specification)
        self._config = config

    @property
    def topic(self) -> str:
        """The publisher's topic, with the prefixes of routers."""
        return f"{self._outer_config.prefix}{self._config.topic}"

    @property
    def tag(self) -> str:
        """The tag for messages that have none."""
        return self._config.fields.get("tag", "")

    def _new_id(self) -> str:
        found: str = self._outer_config.id_generator()
        return found

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[Any]) -> Any:
        return await self._basic_publish(
            self._with_defaults(cmd),
            producer=self._outer_config.producer,
            _extra_middlewares=_extra_middlewares,
        )

    async def _request(self, cmd: EscrowMQPublishCommand) -> Any:
        producer = self._outer_config.producer
        return await self._basic_request(self._with_defaults(cmd), producer=producer)

    def _with_defaults(self, cmd: PublishCommand) -> EscrowMQPublishCommand:
        """Return the command with this publisher's settings, where the message does not override
        them."""
        found = EscrowMQPublishCommand.from_cmd(cmd)
        found.destination = found.destination or self.topic
        found.add_headers(self._config.headers, override=False)
        found.fields = {**self._config.fields, **found.fields}
        return found
