"""The broker's metrics: RocketMQ's under RocketMQ's names, and our own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Protocol

from escrowmq.base.background_rounds import BackgroundRounds
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.measure import (
    Distribution,
    MetricFamily,
    Sample,
    metric_by_topic,
    unlabelled_metric,
)
from escrowmq.broker.access.access_check import AccessCheck
from escrowmq.broker.answers.request_times import RequestLatency
from escrowmq.broker.figures.consumer_gauges import ConsumerGauges
from escrowmq.broker.figures.store_gauges import StoreGauges
from escrowmq.broker.figures.transaction_gauges import transaction_families
from escrowmq.broker.figures.waiting_gauges import WaitingGauges
from escrowmq.broker.peers import Peers
from escrowmq.broker.sends.shedding import LoadShedding
from escrowmq.delivery.clients import Clients
from escrowmq.delivery.stats import GET_COUNT, GET_SIZE, PUT_COUNT, PUT_SIZE, SIZE_BITS_MAX, Stats
from escrowmq.store.store import Store
from escrowmq.txn.transactions import Transactions

_SIZES = (
    *((bits, float(1 << bits)) for bits in (10, 12, 19, 20, 21, 22)),
    (SIZE_BITS_MAX, math.inf),
)


class DropCounter(Protocol):
    """A part that delivers messages later, and counts the invalid records that it skips."""

    @property
    def dropped_count(self) -> int:
        """The number of skipped records."""


class BrokerMetrics:
    """All metrics of one broker, collected on demand."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store: Store,
        clients: Clients,
        stats: Stats,
        shedding: LoadShedding,
        latency: RequestLatency,
        peers: Peers,
        transactions: Transactions,
        access: AccessCheck,
        rounds: BackgroundRounds,
        gauges: StoreGauges,
        reader_gauges: ConsumerGauges,
        later_gauges: WaitingGauges,
        droppers: Iterable[DropCounter],
    ) -> None:
        self._settings = settings
        self._store = store
        self._clients = clients
        self._stats = stats
        self._shedding = shedding
        self._latency = latency
        self._peers = peers
        self._rounds = rounds
        self._gauges = gauges
        self._reader_gauges = reader_gauges
        self._later_gauges = later_gauges
        self._droppers = tuple(droppers)
        self._txn = transactions
        self._access = access

    def metric_families(self, now_ms: int) -> list[MetricFamily]:
        """Return all metrics as of now."""
        return [
            *transaction_families(self._txn, now_ms),
            *self._message_families(),
            self._latency.metric_family(),
            *self._state_families(),
            *self._refusal_families(),
            *self._gauges.metric_families(now_ms),
            *self._reader_gauges.metric_families(now_ms),
            *self._later_gauges.metric_families(now_ms),
        ]

    def write_refusal_reason(self) -> str:
        """Return why no messages are accepted; empty when they are."""
        return self._gauges.write_refusal_reason()

    def set_aside_count(self) -> int:
        """Return the number of records that were skipped because they could not be processed."""
        return sum(dropper.dropped_count for dropper in self._droppers)

    def _refusal_families(self) -> list[MetricFamily]:
        access = self._access
        return [
            unlabelled_metric(
                "escrowmq_denied_requests",
                "counter",
                "Requests refused because a right is missing.",
                access.denials.count,
            ),
            unlabelled_metric(
                "escrowmq_limited_requests",
                "counter",
                "Requests refused because their address or account exceeded a limit.",
                access.rates.refused_count + access.quotas.refused_count,
            ),
            unlabelled_metric(
                "escrowmq_accounts_stale",
                "gauge",
                "1 while a file of accounts is invalid and the last valid one is in force.",
                access.has_stale_accounts,
            ),
        ]

    def _message_families(self) -> list[MetricFamily]:
        stats = self._stats
        return [
            metric_by_topic(
                "rocketmq_messages_in", "counter", "Messages put.", stats.totals(PUT_COUNT)
            ),
            metric_by_topic(
                "rocketmq_throughput_in", "counter", "Bytes put.", stats.totals(PUT_SIZE)
            ),
            MetricFamily(
                "rocketmq_message_size",
                "histogram",
                "Bytes of a record; of a batch, all its records together.",
                ("topic",),
                tuple(
                    Distribution(
                        (topic,),
                        tuple((bound, sum(counts[: bits + 1])) for bits, bound in _SIZES),
                        size,
                    )
                    for topic, counts, size in stats.put_sizes()
                ),
            ),
            _family_by_group(
                "rocketmq_messages_out", "Messages handed out.", stats.totals(GET_COUNT)
            ),
            _family_by_group(
                "rocketmq_throughput_out", "Bytes handed out.", stats.totals(GET_SIZE)
            ),
            unlabelled_metric(
                "escrowmq_shed_requests",
                "counter",
                "Halves and sends refused because they had waited too long.",
                self._shedding.count,
            ),
        ]

    def _state_families(self) -> list[MetricFamily]:
        clients = self._clients
        consumers = {name: len(group.channels) for name, group in clients.consumers.items()}
        producers = {name: len(channels) for name, channels in clients.producers.items()}
        store = self._store
        return [
            unlabelled_metric(
                "rocketmq_broker_permission",
                "gauge",
                "4 read, 2 write.",
                self._settings.permission,
            ),
            _family_by_label(
                "rocketmq_producer_connections", "Producers by group.", "producer_group", producers
            ),
            _family_by_label(
                "rocketmq_consumer_connections", "Consumers by group.", "consumer_group", consumers
            ),
            MetricFamily(
                "escrowmq_failed_rounds",
                "counter",
                "Background work that ended with an internal error, by part; see the log.",
                ("part",),
                tuple(Sample((name,), count) for name, count in self._rounds.failures.items()),
            ),
            unlabelled_metric(
                "escrowmq_records_set_aside",
                "counter",
                "Invalid delayed or popped messages and records about them; see the log.",
                self.set_aside_count(),
            ),
            unlabelled_metric(
                "escrowmq_connections", "gauge", "Open connections.", len(self._peers.by_id)
            ),
            unlabelled_metric(
                "escrowmq_kept_segments",
                "gauge",
                "Log files kept beyond their retention time, because messages in them still wait.",
                store.retention.kept_count,
            ),
            unlabelled_metric(
                "escrowmq_log_end_bytes", "gauge", "End of the log.", store.end_offset
            ),
            unlabelled_metric(
                "escrowmq_log_durable_bytes",
                "gauge",
                "Log offset up to which the log is durable.",
                store.durable_offset,
            ),
        ]


def _family_by_group(name: str, text: str, values: Mapping[str, float]) -> MetricFamily:
    """Return a metric family from values whose keys are `topic@group`."""
    pairs = [(key.partition("@"), value) for key, value in values.items()]
    samples = tuple(Sample((topic, group), value) for (topic, _, group), value in pairs)
    return MetricFamily(name, "counter", text, ("topic", "consumer_group"), samples)


def _family_by_label(name: str, text: str, label: str, values: Mapping[str, float]) -> MetricFamily:
    samples = tuple(Sample((key,), value) for key, value in values.items())
    return MetricFamily(name, "gauge", text, (label,), samples)
