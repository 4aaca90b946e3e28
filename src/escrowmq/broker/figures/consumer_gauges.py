"""Gauges of consumer groups: their lag in messages and time, messages in flight, dead letters.

Names and labels are those of RocketMQ's exporter (BrokerMetricsManager, ConsumerLagCalculator). A
lag in time requires reading a record of the log, so only a limited number of queues has one."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nlargest
from typing import Final, NamedTuple

from escrowmq.base.measure import MetricFamily, Sample
from escrowmq.base.message import Topic
from escrowmq.delivery.groups import TRANSACTION_GROUP
from escrowmq.delivery.offsets import OffsetTable
from escrowmq.delivery.pop_ledger import PopLedger
from escrowmq.store.store import Store

QUEUES_MAX: Final = 500
"""The most queues with a lag metric of their own, and the most pairs of topic and group with a lag
in time: those with the most messages. Each takes 9 us."""

POINTS_MAX: Final = 50_000
"""The most open pops with which the messages in flight of pop groups are counted. Counting more
would take over 10 ms."""

_LABELS: Final = ("topic", "consumer_group", "is_retry")


class _QueueProgress(NamedTuple):
    lag: int
    queue_id: int
    offset: int
    """The offset of the next message to be consumed."""
    fetched: int
    """The offset of the next message to be fetched. The messages between `offset` and this one are
    in flight."""


class _GroupProgress(NamedTuple):
    """A group's progress in the queues of one topic."""

    topic: str
    group: str
    queues: list[_QueueProgress]

    @property
    def labels(self) -> tuple[str, str, str]:
        """The values of the metric labels `_LABELS`."""
        is_retry = str(self.topic.startswith(Topic.RETRY_PREFIX)).lower()
        return self.topic, self.group, is_retry

    @property
    def lag(self) -> int:
        """The number of messages not consumed yet."""
        return sum(queue.lag for queue in self.queues)


class ConsumerGauges:
    """The consumer-lag gauges of one broker."""

    def __init__(self, *, store: Store, offsets: OffsetTable, ledger: PopLedger) -> None:
        self._store = store
        self._offsets = offsets
        self._ledger = ledger

    def metric_families(self, now_ms: int) -> list[MetricFamily]:
        """The gauges as metric families."""
        readings = list(self._progress_of_groups())
        return [
            *self._count_families(readings),
            *self._time_families(readings, now_ms),
            self._queue_lag_family(readings),
            self._dead_letter_family(),
        ]

    def _progress_of_groups(self) -> Iterator[_GroupProgress]:
        bounds, offsets = self._store.bounds, self._offsets
        for key, queues in offsets.items():
            topic, _, group = key.partition("@")
            if group == TRANSACTION_GROUP:
                continue
            found = []
            for queue_id, committed in queues.items():
                start, end = bounds(topic, queue_id)
                offset = max(start, committed)
                asked = max(offset, offsets.pulled_offset(group, topic, queue_id))
                found.append(
                    _QueueProgress(max(0, end - offset), queue_id, offset, min(asked, end))
                )
            yield _GroupProgress(topic, group, found)

    def _count_families(self, readings: list[_GroupProgress]) -> Iterator[MetricFamily]:
        popped = self._ledger.popped
        held = popped.in_flight_counts(POINTS_MAX)
        in_flight = {}
        for one in readings:
            pulled = sum(max(0, queue.fetched - queue.offset) for queue in one.queues)
            if not popped.counts.get(one.group):
                in_flight[one.labels] = pulled
            elif held is not None:
                in_flight[one.labels] = held[one.group, one.topic] or pulled
        for name, text, values in (
            (
                "lag",
                "Messages behind a group's offsets, in queues where it has any.",
                {one.labels: one.lag for one in readings},
            ),
            ("inflight", "Messages that a group has fetched and not acknowledged.", in_flight),
            (
                "ready",
                "Messages that a group has not fetched.",
                {
                    one.labels: max(0, one.lag - in_flight[one.labels])
                    for one in readings
                    if one.labels in in_flight
                },
            ),
        ):
            samples = tuple(Sample(labels, value) for labels, value in values.items())
            yield MetricFamily(
                f"rocketmq_consumer_{name}_messages", "gauge", text, _LABELS, samples
            )

    def _time_families(self, readings: list[_GroupProgress], now_ms: int) -> Iterator[MetricFamily]:
        largest = nlargest(QUEUES_MAX, readings, key=lambda one: one.lag)
        unconsumed, unfetched = [], []
        for one in largest:
            consumed = [(queue.queue_id, queue.offset) for queue in one.queues if queue.lag]
            fetched = [
                (queue.queue_id, queue.fetched)
                for queue in one.queues
                if queue.fetched < queue.offset + queue.lag
            ]
            unconsumed.append(Sample(one.labels, self._age_ms(one.topic, consumed, now_ms)))
            unfetched.append(Sample(one.labels, self._age_ms(one.topic, fetched, now_ms)))
        for name, text, samples in (
            ("lag", "Age of the oldest message that a group has not consumed.", unconsumed),
            ("queueing", "Age of the oldest message that a group has not fetched.", unfetched),
        ):
            yield MetricFamily(
                f"rocketmq_consumer_{name}_latency_milliseconds",
                "gauge",
                text,
                _LABELS,
                tuple(samples),
            )

    def _age_ms(self, topic: str, places: list[tuple[int, int]], now_ms: int) -> int:
        """Return the age of the oldest message at these positions. With many queues, only the first
        ones are considered."""
        stored_ms = self._store.stored_ms_at
        times = [stored_ms(topic, *place) for place in places[:QUEUES_MAX]]
        known = [each for each in times if each > 0]
        return max(0, now_ms - min(known)) if known else 0

    def _queue_lag_family(self, readings: list[_GroupProgress]) -> MetricFamily:
        rows = [
            (queue.lag, one.topic, one.group, str(queue.queue_id))
            for one in readings
            for queue in one.queues
            if queue.lag
        ]
        samples = [Sample(tuple(names), lag) for lag, *names in nlargest(QUEUES_MAX, rows)]
        return MetricFamily(
            "escrowmq_queue_lag_messages",
            "gauge",
            f"Messages behind a group's offset in one queue; the {QUEUES_MAX} that lag most.",
            ("topic", "consumer_group", "queue_id"),
            tuple(samples),
        )

    def _dead_letter_family(self) -> MetricFamily:
        store = self._store
        dead = [topic for topic in store.topics() if topic.startswith(Topic.DLQ_PREFIX)]
        return MetricFamily(
            "rocketmq_send_to_dlq_messages",
            "counter",
            "Messages given up for a group, since its dead letters were made.",
            ("consumer_group",),
            tuple(
                Sample(
                    (topic.removeprefix(Topic.DLQ_PREFIX),),
                    sum(store.bounds(topic, queue_id)[1] for queue_id in store.queues_of(topic)),
                )
                for topic in dead
            ),
        )
