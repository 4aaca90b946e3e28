"""Gauges of the store, and of the numbers of topics and groups, computed on demand."""

from __future__ import annotations

from collections.abc import Iterator

from escrowmq.base.measure import Kind, MetricFamily, Sample
from escrowmq.delivery.delay_queues import DelayQueues
from escrowmq.delivery.groups import GroupTable
from escrowmq.delivery.timer import TimerQueue
from escrowmq.delivery.topics import TopicTable
from escrowmq.store.store import Store

_LOCAL = ("local", "disk")
_STORAGE = ("storage_type", "storage_medium")


class StoreGauges:
    """The store gauges of one broker."""

    def __init__(
        self,
        *,
        store: Store,
        topics: TopicTable,
        groups: GroupTable,
        delays: DelayQueues,
        timer: TimerQueue,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._delays = delays
        self._timer = timer

    def metric_families(self, now_ms: int) -> list[MetricFamily]:
        """Return all gauges, under RocketMQ's names where it has one."""
        return [
            *self._storage_families(now_ms),
            *self._topic_and_group_families(),
            *self._escrowmq_families(),
        ]

    def write_refusal_reason(self) -> str:
        """Return why no messages are accepted; empty when they are."""
        return self._store.refusal or ""

    def _storage_families(self, now_ms: int) -> Iterator[MetricFamily]:
        store = self._store
        oldest = store.read(store.min_log_offset)
        kept_ms = now_ms - oldest.stored_ms if oldest is not None else 0
        for name, text, value in (
            ("size_bytes", "Bytes of the log.", store.end_offset - store.min_log_offset),
            ("flush_behind_bytes", "Not durable yet.", store.end_offset - store.durable_offset),
            ("dispatch_behind_bytes", "Not visible yet.", store.unseen_size),
            ("message_reserve_time_milliseconds", "Age of the oldest message.", kept_ms),
        ):
            samples = (Sample(_LOCAL, value),)
            yield MetricFamily(f"rocketmq_storage_{name}", "gauge", text, _STORAGE, samples)

    def _topic_and_group_families(self) -> Iterator[MetricFamily]:
        for name, text, value in (
            ("rocketmq_topic_number", "Topics.", len(self._topics.names())),
            ("rocketmq_consumer_group_number", "Consumer groups.", len(self._groups.names())),
        ):
            yield MetricFamily(name, "gauge", text, (), (Sample((), value),))

    def _escrowmq_families(self) -> Iterator[MetricFamily]:
        backlog = self._delays.backlog()
        waiting = {str(level): end - offset for level, (offset, end) in backlog.items()}
        waiting["timer"] = self._timer.pending_count
        yield MetricFamily(
            "escrowmq_delayed_messages",
            "gauge",
            "Delayed messages, by delay level or of the timer.",
            ("level",),
            tuple(Sample((level,), count) for level, count in waiting.items()),
        )
        store = self._store
        own: tuple[tuple[str, Kind, str, float], ...] = (
            ("disk_used_percent", "gauge", "How full the log's disk is.", store.disk_percent),
            (
                "read_only",
                "gauge",
                "1 while no messages are accepted.",
                bool(self.write_refusal_reason()),
            ),
            (
                "failed_syncs",
                "counter",
                "Times that the disk could not make the store durable.",
                store.mending.failures_count,
            ),
            (
                "damaged_records",
                "gauge",
                "Records that cannot be read.",
                len(store.damaged_records),
            ),
            (
                "unwritable_queues",
                "gauge",
                "Queues whose files cannot be written, so that their new messages are not visible.",
                len(store.dispatcher.held_back.units),
            ),
            (
                "deleted_log_files",
                "counter",
                "Files of the log deleted.",
                store.retention.deleted_count,
            ),
        )
        for name, kind, text, value in own:
            yield MetricFamily(f"escrowmq_{name}", kind, text, (), (Sample((), value),))
