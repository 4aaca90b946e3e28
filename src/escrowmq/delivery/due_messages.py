"""Stores delayed messages in their topic when they are due."""

from __future__ import annotations

from escrowmq.base.message import Message
from escrowmq.delivery.topics import TopicTable
from escrowmq.store.store import PutResult, Store


class DueMessages:
    """Stores delayed messages in their topic when they are due."""

    def __init__(self, store: Store, topics: TopicTable) -> None:
        self._store = store
        self._topics = topics

    def put(self, message: Message, now_ms: int) -> PutResult:
        """Store a due message in its queue; in another one if the topic has fewer queues now."""
        message.queue_id = self._topics.readable_queue(message.topic, message.queue_id)
        return self._store.put(message, now_ms)
