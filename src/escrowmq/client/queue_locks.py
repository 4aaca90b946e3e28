"""Locks of orderly queues, which only one member of a group may read. Brokers keep the locks;
members renew them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

import msgspec

from escrowmq.base.codes import Request
from escrowmq.client.consumer_settings import ConsumerOptions
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.instance import ClientInstance
from escrowmq.codec.client_bodies import LockBody, decode_body
from escrowmq.codec.fastjson import QueueId
from escrowmq.errors import EscrowMQError

_log = logging.getLogger(__name__)

RENEW_MS: Final = 20_000
"""Interval at which locks are renewed."""

BROKERS_LIFE_S: Final = 60
"""A broker lets others have a lock that was not renewed for this long."""

LOCK_LIFE_S: Final = 30
"""A lock that was not renewed for this long counts as lost."""


class _LockedQueues(msgspec.Struct):
    granted: list[QueueId] = msgspec.field(name="lockOKMQSet", default_factory=list)


class QueueLocks:
    """The queue locks of one member of a group."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group

    async def lock(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Lock queues, or renew their locks; return the queues that this member has now."""
        found = await asyncio.gather(
            *(self._lock_at_broker(name, each) for name, each in _group_by_broker(queues).items())
        )
        return set().union(*found)

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Release the queues for other members."""
        for name, each in _group_by_broker(queues).items():
            try:
                address = self._instance.address_of(name)
                await self._instance.ask(
                    address, Request.UNLOCK_BATCH_MQ, {}, self._lock_body(each)
                )
            except EscrowMQError as error:
                _log.warning("%d queues of %s stay locked for a minute: %s", len(each), name, error)

    async def _lock_at_broker(self, name: str, queues: list[MessageQueue]) -> set[MessageQueue]:
        try:
            address = self._instance.address_of(name)
            reply = await self._instance.ask(
                address, Request.LOCK_BATCH_MQ, {}, self._lock_body(queues)
            )
            granted = decode_body(_LockedQueues, reply.body).granted
        except EscrowMQError as error:
            _log.warning("%d queues of %s cannot be locked: %s", len(queues), name, error)
            return set()
        return {MessageQueue(one.topic, one.broker_name, one.queue_id) for one in granted}

    def _lock_body(self, queues: list[MessageQueue]) -> bytes:
        return msgspec.json.encode(
            LockBody(
                client_id=self._instance.client_id,
                consumer_group=self._group,
                mq_set=[QueueId(one.broker_name, one.queue_id, one.topic) for one in queues],
            )
        )


class NoLocks(QueueLocks):
    """The locks of a broadcasting consumer, which needs none: every member reads all queues."""

    async def lock(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Return all queues."""
        return set(queues)

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Do nothing."""


def make_queue_locks(instance: ClientInstance, group: str, options: ConsumerOptions) -> QueueLocks:
    """Return the queue locks of a member of a group."""
    return (NoLocks if options.is_broadcasting else QueueLocks)(instance, group)


def _group_by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    found: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        found.setdefault(queue.broker_name, []).append(queue)
    return found
