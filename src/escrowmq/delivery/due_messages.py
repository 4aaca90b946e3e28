"""Delivery of due messages."""

from __future__ import annotations

from escrowmq.base.message import Message
from escrowmq.delivery.topics import TopicTable
from escrowmq.store.store import Put, Store


class Due:
    """Stores due messages in their topic."""

    def __init__(self, store: Store, topics: TopicTable) -> None:
        self._store = store
        self._topics = topics

    def put(self, message: Message, now_ms: int) -> Put:
        """Store a due message, in an existing queue."""
        message.queue_id = self._topics.queue_read(message.topic, message.queue_id)
        return self._store.put(message, now_ms)
