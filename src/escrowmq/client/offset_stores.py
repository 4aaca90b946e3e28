"""The store in which a consumer keeps the offsets up to which it has read."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol

from escrowmq.client.consumer_settings import ConsumerOptions
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.instance import ClientInstance
from escrowmq.client.offsets import BrokerOffsets
from escrowmq.client.queue_fetcher import QueueFetcher
from escrowmq.errors import EscrowMQError

_log = logging.getLogger(__name__)


class OffsetStore(Protocol):
    """A store of a consumer's offsets: a broker, or a file."""

    async def start_offset(self, queue: MessageQueue, *, since_ms: int | None = None) -> int:
        """Return where to start in a queue. `since_ms` is given if the queue appeared while the
        consumer ran."""

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the stored offset of a queue; None if there is none."""

    def has_broker_offsets(self, queue: MessageQueue) -> bool:
        """Whether the queue's broker stores an offset of the group for any queue of the topic."""

    async def store_offsets(self, readers: Iterable[QueueFetcher]) -> None:
        """Store changed offsets."""


def make_offset_store(
    instance: ClientInstance, group: str, options: ConsumerOptions
) -> OffsetStore:
    """Return the store of a consumer's offsets: a folder if it is broadcasting, otherwise the
    brokers."""
    if options.is_broadcasting:
        from escrowmq.client.offset_file import FileOffsets

        folder = options.offsets_folder
        return FileOffsets(instance, folder, group=group, start=options.consume_from)
    return BrokerOffsets(instance, group, options.consume_from, keeps_start=options.auto_commit)


async def without_overtaken(
    store: OffsetStore, readers: Iterable[QueueFetcher]
) -> list[QueueFetcher]:
    """Return the readers whose offsets may be stored when they end. If the lock of an orderly queue
    was lost, another member may have read on, and its offset must not be set back."""
    found: list[QueueFetcher] = []
    for reader in readers:
        if not reader.is_lock_fresh():
            try:
                stored = await store.committed(reader.queue)
            except EscrowMQError as error:
                _log.warning("the offset of %s is not stored: %s", reader.queue, error)
                continue
            if stored is not None and stored > reader.fetched.commit_offset:
                continue
        found.append(reader)
    return found
