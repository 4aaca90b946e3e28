"""The store in which a consumer keeps the offsets up to which it has read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from escrowmq.client.consumer_settings import ConsumerOptions
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.instance import Instance
from escrowmq.client.offsets import BrokerOffsets
from escrowmq.client.queue_fetcher import QueueFetcher


class KeptOffsets(Protocol):
    """A store of a consumer's offsets: a broker, or a file."""

    async def begin(self, queue: MessageQueue, *, since_ms: int | None = None) -> int:
        """Return where to start in a queue. `since_ms` is given if the queue appeared while the
        consumer ran."""

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the stored offset of a queue; None if there is none."""

    def are_kept(self, queue: MessageQueue) -> bool:
        """Whether the queue's broker stores an offset of the group for any queue of the topic."""

    async def keep(self, readers: Iterable[QueueFetcher]) -> None:
        """Store changed offsets."""


def offsets_of(instance: Instance, group: str, options: ConsumerOptions) -> KeptOffsets:
    """Return the store of a consumer's offsets: a folder if it is broadcasting, otherwise the
    brokers."""
    if options.is_broadcasting:
        from escrowmq.client.offset_file import FileOffsets

        folder = options.offsets_folder
        return FileOffsets(instance, folder, group=group, start=options.consume_from)
    return BrokerOffsets(instance, group, options.consume_from, keeps_start=options.auto_commit)
