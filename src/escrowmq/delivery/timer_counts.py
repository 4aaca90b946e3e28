"""Counts delayed messages by topic."""

from __future__ import annotations

from collections import Counter

import msgspec

from escrowmq.base.measure import KeyedCounts
from escrowmq.base.message import Message, Property
from escrowmq.codec import fastjson
from escrowmq.delivery.data_version import DataVersion


class _Count(msgspec.Struct, rename="camel"):
    count: int
    time_stamp: int


class WaitingCounts:
    """Counts waiting messages by topic, like RocketMQ's TimerMetrics. A topic without any is
    forgotten."""

    def __init__(self) -> None:
        self._counts: dict[str, _Count] = {}
        self._recalls: Counter[str] = Counter()
        self._version = DataVersion()
        self.taken, self.passed = KeyedCounts(), KeyedCounts()
        """The number of messages that arrived and that left since the start, by topic."""

    def waiting(self) -> dict[str, int]:
        """Return the number of waiting messages by topic."""
        return {topic: count.count for topic, count in self._counts.items()}

    def waiting_of(self, topic: str) -> int:
        """Return the number of waiting messages of a topic, with recalls."""
        count = self._counts.get(topic)
        return self._recalls[topic] + (0 if count is None else count.count)

    def recalls_of(self, topic: str) -> int:
        """Return the number of waiting recalls of messages of a topic."""
        return self._recalls[topic]

    def has(self, topic: str) -> bool:
        """Whether messages of a topic are waiting."""
        return topic in self._counts

    def add(self, source: Message, step: int, now_ms: int) -> None:
        """Count a message of a topic that begins to wait (step 1), or no longer waits (-1). Recalls
        are counted separately, because RocketMQ does not show them."""
        topic = source.properties.get(Property.REAL_TOPIC, "")
        if Property.TIMER_DEL_UNIQKEY in source.properties:
            self._add_recall(topic, step)
            return
        if step > 0:
            self.taken.add(topic)
        elif (topic,) in self.taken.of:  # else it was deleted
            self.passed.add(topic)
        count = self._counts.get(topic)
        if count is None:
            count = self._counts[topic] = _Count(0, now_ms)
        count.count += step
        count.time_stamp = now_ms
        assert count.count >= 0, topic
        if not count.count:
            del self._counts[topic]
        self._version.advance(now_ms)

    def _add_recall(self, topic: str, step: int) -> None:
        self._recalls[topic] += step
        assert self._recalls[topic] >= 0, topic
        if not self._recalls[topic]:
            del self._recalls[topic]

    def forget_topic(self, topic: str) -> None:
        """Remove the totals of a deleted topic. Its waiting messages count until they are due."""
        self.taken.remove(topic, at=0)
        self.passed.remove(topic, at=0)

    def encode(self) -> bytes:
        """Return the body of the answer to GET_TIMER_METRICS."""
        return fastjson.encode({"dataVersion": self._version, "timingCount": self._counts})
