"""Sends messages under given unique keys: a message that is sent again keeps its identity, so that
consumers can skip duplicates."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from escrowmq.base.fixed_limits import INT_MAX
from escrowmq.base.message import Property
from escrowmq.client.core.message import Message
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.producer import Producer
from escrowmq.pipeline.brokers.options import ClusterAccess

TIMEOUT_MS: Final = 10_000
_ANY_SIZE: Final = INT_MAX
"""A broker has stored these messages before, so the limit is the broker's own (maxMessageSize)."""


class KeyedSender:
    """Sends messages one after another from blocking code, also in forked processes."""

    def __init__(self, access: ClusterAccess, *, group: str) -> None:
        self._access = access
        self._group = group
        self._runner = asyncio.Runner()
        self._producer: Producer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._producer is not None:
            self._runner.run(self._producer.close())
        self._runner.close()

    def send(
        self,
        message: Message,
        *,
        key: str,
        properties: Mapping[str, str] | None = None,
        queue: MessageQueue | None = None,
    ) -> None:
        """Store a message with additional properties; when this returns, the broker has
        acknowledged it."""
        self._runner.run(self._send(message, {**(properties or {}), Property.UNIQ_KEY: key}, queue))

    def queues(self, topic: str) -> Sequence[MessageQueue]:
        """Return the writable queues of a topic, in the order that every client uses."""
        return self._runner.run(self._queues(topic))

    async def _queues(self, topic: str) -> Sequence[MessageQueue]:
        return await (await self._open()).instance.queues_to_write(topic)

    async def _send(
        self, message: Message, extra: dict[str, str], queue: MessageQueue | None
    ) -> None:
        dispatch = (await self._open()).dispatch
        out = dispatch.prepare(message, extra)
        await dispatch.send_prepared(message, out, queue=queue)

    async def _open(self) -> Producer:
        if self._producer is None:
            access = self._access
            producer = Producer(
                access.name_servers,
                group=self._group,
                credentials=access.credentials(),
                tls=access.tls(),
                timeout_ms=TIMEOUT_MS,
                body_size_max=_ANY_SIZE,
            )
            await producer.open()
            self._producer = producer
        return self._producer
