"""The store in which a consumer keeps the offsets up to which it has read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from escrowmq.client.consumer_settings import ConsumerOptions
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.instance import ClientInstance
from escrowmq.client.offsets import BrokerOffsets
from escrowmq.client.queue_fetcher import QueueFetcher


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
