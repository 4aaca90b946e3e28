"""Tells which queues exist, so that clients cannot fill tables with names of queues that do not."""

from __future__ import annotations

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.delivery.topics import TopicTable
from escrowmq.store.store import Store


class ExistingQueues:
    """The queues of this broker for which offsets and locks are kept."""

    def __init__(self, settings: BrokerSettings, topics: TopicTable, store: Store) -> None:
        self._settings = settings
        self._topics = topics
        self._store = store

    def __contains__(self, place: tuple[str, int]) -> bool:
        """Whether to keep something for a queue of a topic: it exists, or was removed but may still
        have messages. (RocketMQ accepts any queue, so that clients can fill its memory.)"""
        topic, queue_id = place
        config = self._topics.get(topic)
        if self._settings.places_as_rocketmq or config is None:
            return self._settings.places_as_rocketmq
        count = max(config.read_queue_nums, config.write_queue_nums)
        return 0 <= queue_id < count or self._store.bounds(topic, queue_id)[1] > 0
