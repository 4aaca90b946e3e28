"""Gauges of messages that wait for a time: delayed ones, and popped ones.

Names and labels are those of RocketMQ's exporter (5.3: DefaultStoreMetricsManager,
PopMetricsManager). There is no gauge for what this broker does not have: a queue of requests
(`processor_watermark`), a buffer of offsets, and a revive topic that is read at run time.
"""

from __future__ import annotations

from collections.abc import Iterator

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.measure import Kind, MetricFamily, Sample
from escrowmq.base.message import Topic
from escrowmq.delivery.pop_ledger import PopLedger
from escrowmq.delivery.timer import TimerQueue
from escrowmq.store.store import Store

_STORAGE = ("storage_type", "storage_medium")
_LOCAL = ("local", "disk")


class WaitingGauges:
    """The gauges of delayed and popped messages of one broker."""

    def __init__(
        self, settings: BrokerSettings, store: Store, timer: TimerQueue, ledger: PopLedger
    ) -> None:
        self._settings = settings
        self._store = store
        self._timer = timer
        self._ledger = ledger

    def metric_families(self, now_ms: int) -> list[MetricFamily]:
        """The gauges as metric families."""
        return [*self._timer_families(now_ms), *self._pop_families(now_ms)]

    def _timer_families(self, now_ms: int) -> Iterator[MetricFamily]:
        """Yield gauges of messages that are delivered at a chosen time."""
        if not self._settings.has_timer:
            return
        timer, store = self._timer, self._store
        taken, end = timer.next_read_offset, store.bounds(Topic.TIMER, 0)[1]
        behind_ms = now_ms - store.stored_ms_at(Topic.TIMER, 0, taken) if taken < end else 0
        for name, text, value in (
            ("enqueue_lag", "Delayed messages stored but not scheduled yet.", end - taken),
            ("enqueue_latency_milliseconds", "Age of the oldest of them.", behind_ms),
            ("dequeue_lag", "Delayed messages that wait for their time.", timer.pending_count),
            ("dequeue_latency_milliseconds", "So late is the next.", timer.late_ms(now_ms)),
        ):
            samples = (Sample(_LOCAL, max(0, value)),)
            yield MetricFamily(f"rocketmq_timer_{name}", "gauge", text, _STORAGE, samples)
        counts = timer.counts
        waiting = tuple(Sample((*_LOCAL, topic), n) for topic, n in counts.waiting().items())
        by_topic: tuple[tuple[str, Kind, str, tuple[Sample, ...]], ...] = (
            ("timing_messages", "gauge", "Delayed messages that are not delivered yet.", waiting),
            (
                "timer_enqueue",
                "counter",
                "Delayed messages scheduled.",
                counts.taken.samples(*_LOCAL),
            ),
            (
                "timer_dequeue",
                "counter",
                "Delayed messages passed.",
                counts.passed.samples(*_LOCAL),
            ),
        )
        for name, kind, text, found in by_topic:
            yield MetricFamily(f"rocketmq_{name}", kind, text, (*_STORAGE, "topic"), found)
        ahead = timer.due_times.ahead_counts(now_ms)
        yield MetricFamily(
            "rocketmq_timer_message_snapshot",
            "gauge",
            "Delayed messages by the seconds until they are due.",
            (*_STORAGE, "timer_bound_s"),
            tuple(Sample((*_LOCAL, str(bound)), count) for bound, count in ahead.items()),
        )
        yield MetricFamily(
            "rocketmq_delay_message_latency_seconds",
            "histogram",
            "Requested delays of messages.",
            (*_STORAGE, "topic"),
            timer.delays.distributions(*_LOCAL),
        )

    def _pop_families(self, now_ms: int) -> Iterator[MetricFamily]:
        """Yield gauges of messages that were popped and not acknowledged."""
        store, ledger = self._store, self._ledger
        popped = ledger.popped
        yield MetricFamily(
            "rocketmq_pop_checkpoint_buffer_size",
            "gauge",
            "Pops with messages that are not acknowledged.",
            (),
            (Sample((), popped.count),),
        )
        oldest, late_ms = popped.oldest_records(), popped.late_ms(now_ms)
        queues = store.queues_of(ledger.topic)
        lags = {}
        for queue_id in queues:
            end = store.bounds(ledger.topic, queue_id)[1]
            lags[queue_id] = end - min(oldest.get(queue_id, end), end)
        for name, text, values in (
            ("lag", "Records from the oldest open pop on.", lags),
            ("latency", "How late redeliveries are.", late_ms),
        ):
            yield MetricFamily(
                f"rocketmq_pop_revive_{name}_milliseconds",  # a count, for the lag
                "gauge",
                text,
                ("queue_id",),
                tuple(Sample((str(queue_id),), values.get(queue_id, 0)) for queue_id in queues),
            )
        yield MetricFamily(
            "rocketmq_pop_revive_in_message",
            "counter",
            "Records about pops, by group, topic, kind (CK, ACK) and outcome.",
            ("consumer_group", "topic", "revive_message_type", "put_status"),
            ledger.counts.stored.samples(),
        )
        yield MetricFamily(
            "rocketmq_pop_revive_retry_messages",
            "counter",
            "Messages redelivered to a group.",
            ("consumer_group", "topic", "put_status"),
            ledger.counts.again.samples(),
        )
