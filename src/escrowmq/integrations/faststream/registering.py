"""The decorators of brokers and routers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Unpack

from faststream._internal.broker.registrator import Registrator
from faststream._internal.broker.router import BrokerRouter
from faststream._internal.configs import BrokerConfig
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream.exceptions import SetupError
from faststream.middlewares import AckPolicy

from escrowmq.client.consumer_settings import split_consumer_settings
from escrowmq.client.core.hooks import Interceptor
from escrowmq.client.core.message import ReceivedMessage
from escrowmq.client.producer_settings import ConnectionSettings, MessageFields
from escrowmq.integrations.faststream.publishing import (
    EscrowMQPublisher,
    PublisherAsyncApi,
    PublisherConfig,
    PublisherSpecConfig,
)
from escrowmq.integrations.faststream.subscribing import (
    EscrowMQBatchSubscriber,
    EscrowMQSubscriber,
    SubscriberAsyncApi,
    SubscriberConfig,
    SubscriberSpecConfig,
)

RECORDS_MAX: Final = 32
"""The default size of a batch."""


@dataclass(kw_only=True)
class Config(BrokerConfig):
    """Settings of a broker or a router; a router has no addresses."""

    name_servers: str | Sequence[str] | None = None
    connection: ConnectionSettings = field(default_factory=ConnectionSettings)
    interceptors: Sequence[Interceptor] = ()


class EscrowMQRegistrator(Registrator[ReceivedMessage, Config]):
    """Base of brokers and routers."""

    def subscriber(
        self,
        topic: str,
        group: str,
        *,
        max_workers: int = 1,
        batch: bool = False,
        max_records: int = RECORDS_MAX,
        ack_policy: AckPolicy = EMPTY,
        no_reply: bool = False,
        dependencies: Sequence[Any] = (),
        parser: Any = None,
        decoder: Any = None,
        codec: Any = None,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        include_in_schema: bool = True,
        **settings: Any,
    ) -> EscrowMQSubscriber:
        """Subscribe a handler to a topic, `max_workers` messages at a time. Members of a group
        share the messages; a group has one subscriber per program. With `batch` the handler gets a
        list of the available messages, at most `max_records`. `settings` are those of
        `escrowmq.aio.Consumer`: `tags`, `sql`, `attempts_max`, `is_orderly`, `mode`, ..."""
        self._check_subscription(group, settings)
        settings = {"concurrency": max_workers, **settings}
        if batch:
            settings["batch_max"] = max_records
        # Report errors here, not only when everything is running.
        split_consumer_settings({"topic": topic, **settings})
        calls = CallsCollection[Any]()
        config = SubscriberConfig(
            topic=topic,
            group=group,
            settings=settings,
            no_reply=no_reply,
            _outer_config=self.config,
            _ack_policy=ack_policy,
        )
        page = SubscriberSpecConfig(
            topic=topic, title_=title, description_=description, include_in_schema=include_in_schema
        )
        kind = EscrowMQBatchSubscriber if batch else EscrowMQSubscriber
        made = kind(config, SubscriberAsyncApi(self.config, page, calls), calls)
        super().subscriber(made, persistent=persistent)
        made.add_call(
            parser_=parser or self._parser,
            decoder_=decoder or self._decoder,
            codec_=codec,
            dependencies_=dependencies,
        )
        return made

    def publisher(
        self,
        topic: str,
        *,
        headers: dict[str, str] | None = None,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        schema: Any | None = None,
        include_in_schema: bool = True,
        **fields: Unpack[MessageFields],
    ) -> EscrowMQPublisher:
        """Make a publisher of a handler's return value, with `fields` of `Message` (`tag`, `keys`,
        `delay`, ...), which an `EscrowMQResponse` overrides."""
        config = PublisherConfig(
            topic=topic, headers=headers or {}, fields=fields, _outer_config=self.config
        )
        page = PublisherSpecConfig(
            topic=topic,
            schema_=schema,
            title_=title,
            description_=description,
            include_in_schema=include_in_schema,
        )
        made = EscrowMQPublisher(config, PublisherAsyncApi(self.config, page))
        super().publisher(made, persistent=persistent)
        return made

    def include_router(self, router: Any, **more: Any) -> None:
        """Include a router's handlers."""
        if not isinstance(router, EscrowMQRegistrator):
            raise SetupError(
                f"{type(router).__name__} is another broker's router; EscrowMQRouter is expected"
            )
        super().include_router(router, **more)

    def _check_subscription(self, group: str, settings: dict[str, Any]) -> None:
        taken = {"topic", "topics", "queues", "handler", "batch_max"} & settings.keys()
        if taken:
            raise SetupError(
                f"{', '.join(sorted(taken))}: a subscriber has one topic, and its handler; for "
                "several messages at once there are batch=True and max_records"
            )
        if any(each.group == group for each in self.subscribers):
            raise SetupError(
                f"the group {group!r} already has a subscriber; members of a group share "
                "what they read, so each subscriber needs a group of its own"
            )


class EscrowMQRouter(EscrowMQRegistrator, BrokerRouter[ReceivedMessage, Config]):
    """A set of handlers for a broker: `broker.include_router(router)`. `prefix` is added to topics,
    but not to groups."""

    def __init__(
        self,
        prefix: str = "",
        handlers: Iterable[Any] = (),
        *,
        dependencies: Sequence[Any] = (),
        middlewares: Sequence[Any] = (),
        routers: Iterable[EscrowMQRegistrator] = (),
        parser: Any = None,
        decoder: Any = None,
        ack_policy: AckPolicy = EMPTY,
        include_in_schema: bool | None = None,
    ) -> None:
        super().__init__(
            handlers=handlers,
            routers=routers,
            config=Config(
                prefix=prefix,
                broker_dependencies=dependencies,
                broker_middlewares=middlewares,
                broker_parser=parser,
                broker_decoder=decoder,
                ack_policy=ack_policy,
                include_in_schema=include_in_schema,
            ),
        )
