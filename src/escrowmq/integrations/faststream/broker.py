"""EscrowMQ's broker for FastStream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final, Unpack, cast

from fast_depends import dependency_provider
from faststream._internal.broker import BrokerUsecase
from faststream._internal.constants import EMPTY
from faststream._internal.context.repository import ContextRepo
from faststream._internal.di import FastDependsConfig
from faststream._internal.logger import DefaultLoggerStorage, make_logger_state
from faststream._internal.logger.logging import get_broker_logger
from faststream.middlewares import AckPolicy
from faststream.response import PublishCommand
from faststream.specification.schema import BrokerSpec

from escrowmq.client.admin.admin import Admin
from escrowmq.client.core.message import ReceivedMessage
from escrowmq.client.producer import Producer
from escrowmq.client.producer_settings import ConnectionSettings, ProducerSettings
from escrowmq.errors import EscrowMQError, TransportError
from escrowmq.integrations.faststream.publishing import (
    EscrowMQPublishCommand,
    ProducerAdapter,
    PublishMethods,
)
from escrowmq.integrations.faststream.registering import Config, EscrowMQRegistrator

PING_S: Final = 3.0
_ID_WIDTH: Final = 10


class _LoggerStorage(DefaultLoggerStorage):
    """Logs with topic and group in columns."""

    def __init__(self) -> None:
        super().__init__()
        self._widths = {"topic": 5, "group": 5}

    def register_subscriber(self, params: dict[str, Any]) -> None:
        """Widen the columns to fit a subscriber's topic and group."""
        for name, width in self._widths.items():
            self._widths[name] = max(width, len(params.get(name, "")))

    def get_logger(self, *, context: ContextRepo) -> Any:
        """Return the logger, which is the same for all."""
        if (found := self._get_logger_ref()) is not None:
            return found
        columns = "".join(f"%({name})-{width}s | " for name, width in self._widths.items())
        made = get_broker_logger(
            name="escrowmq",
            default_context=dict.fromkeys(self._widths, ""),
            message_id_ln=_ID_WIDTH,
            fmt=f"%(asctime)s %(levelname)-8s - {columns}%(message_id)-{_ID_WIDTH}s - %(message)s",
            context=context,
            log_level=self.logger_log_level,
        )
        self._logger_ref.add(made)
        return made


class EscrowMQBroker(
    PublishMethods, EscrowMQRegistrator, BrokerUsecase[ReceivedMessage, Producer, Config]
):
    """EscrowMQ, or RocketMQ, for FastStream.

    `name_servers` and `settings` are those of `escrowmq.aio.Producer`; settings of connections
    (`credentials`, `tls`, ...) and `interceptors` apply to subscribers too. `group` is the producer
    group: use the name of the service."""

    _connection: Producer | None

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        group: str = "faststream",
        graceful_timeout: float | None = 15.0,
        ack_policy: AckPolicy = EMPTY,
        decoder: Any = None,
        parser: Any = None,
        codec: Any = None,
        dependencies: Sequence[Any] = (),
        middlewares: Sequence[Any] = (),
        routers: Iterable[EscrowMQRegistrator] = (),
        description: str | None = None,
        specification_url: str | Sequence[str] | None = None,
        tags: Iterable[Any] = (),
        logger: Any = EMPTY,
        log_level: int = logging.INFO,
        apply_types: bool = True,
        serializer: Any = EMPTY,
        provider: Any = None,
        context: ContextRepo | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        self._group = group
        self._settings = settings
        config = Config(
            name_servers=name_servers,
            connection=_connection_settings(settings),
            interceptors=settings.get("interceptors", ()),
            producer=ProducerAdapter(parser=parser, decoder=decoder),
            broker_middlewares=middlewares,
            broker_parser=parser,
            broker_decoder=decoder,
            broker_codec=codec,
            broker_dependencies=dependencies,
            graceful_timeout=graceful_timeout,
            ack_policy=ack_policy,
            logger=make_logger_state(
                logger=logger, log_level=log_level, default_storage_cls=_LoggerStorage
            ),
            fd_config=FastDependsConfig(
                use_fastdepends=apply_types,
                serializer=serializer,
                provider=provider or dependency_provider,
                context=context or ContextRepo(),
            ),
            extra_context={"broker": self},
        )
        page = _asyncapi_spec(specification_url or name_servers, description=description, tags=tags)
        super().__init__(config=config, routers=routers, specification=page)

    @property
    def producer(self) -> Producer:
        """The broker's `escrowmq.aio.Producer`, once it is connected: for transactions, and for an
        outbox."""
        found: Producer = self.config.producer.producer
        return found

    async def _connect(self) -> Producer:
        config = self.config.broker_config
        producer = Producer(config.name_servers, group=self._group, **self._settings)
        await producer.open()
        config.producer.connect(
            producer, serializer=config.fd_config._serializer, codec=config.broker_codec
        )
        return producer

    async def start(self) -> None:
        """Connect to the brokers, and start to consume."""
        await self.connect()
        await super().start()

    async def stop(self, *error: Any) -> None:
        """Stop subscribers first, so that running handlers can still publish."""
        await super().stop(*error)
        producer: Producer | None = self._connection
        self._connection = None
        if producer is not None:
            self.config.producer.connect(None, codec=None)
            await producer.close()

    async def ping(self, timeout: float | None = None) -> bool:
        """Whether a name server answers."""
        config = self.config.broker_config
        try:
            async with asyncio.timeout(timeout or PING_S):
                async with Admin(config.name_servers, **config.connection) as admin:
                    await admin.brokers.all()
        except (EscrowMQError, TransportError, TimeoutError):
            return False
        return True

    # -- publishing --------------------------------------------------------------------------

    def _new_id(self) -> str:
        found: str = self.config.id_generator()
        return found

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[Any]) -> Any:
        return await self._basic_publish(cmd, producer=self.config.producer)

    async def _request(self, cmd: EscrowMQPublishCommand) -> Any:
        return await self._basic_request(cmd, producer=self.config.producer)


def _connection_settings(settings: ProducerSettings) -> ConnectionSettings:
    """Return those of a producer's settings that apply to consumers too."""
    names = ConnectionSettings.__annotations__
    found = {name: value for name, value in settings.items() if name in names}
    return cast("ConnectionSettings", found)


def _asyncapi_spec(
    urls: str | Sequence[str] | None, *, description: str | None, tags: Iterable[Any]
) -> BrokerSpec:
    """A broker's part of the AsyncAPI specification."""
    return BrokerSpec(
        url=[urls] if isinstance(urls, str) else list(urls or ["NAMESRV_ADDR"]),
        protocol="rocketmq",
        protocol_version=None,
        description=description,
        tags=tags,
        security=None,
    )
