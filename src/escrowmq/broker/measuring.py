"""What a broker tells whoever watches it: RocketMQ's figures under RocketMQ's names, and ours."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import accumulate

from escrowmq.base.measure import Distribution, Family, Kind, Sample
from escrowmq.base.rounds import Rounds
from escrowmq.broker.door import Door
from escrowmq.broker.gauges import gauges, refusal
from escrowmq.broker.later_gauges import pop_gauges, timer_gauges
from escrowmq.broker.state import Broker
from escrowmq.delivery.pop import PopLedger
from escrowmq.delivery.stats import GET_COUNT, GET_SIZE, PUT_COUNT, PUT_SIZE, SIZE_BITS_MAX
from escrowmq.txn.meter import LATENCY_BOUNDS_S
from escrowmq.txn.transactions import Transactions

_SIZES = (
    *((bits, float(1 << bits)) for bits in (10, 12, 19, 20, 21, 22)),
    (SIZE_BITS_MAX, math.inf),
)
_BUCKETS = (*map(float, LATENCY_BOUNDS_S), math.inf)


class Measuring:
    """All figures of one broker; asked for now and then."""

    def __init__(
        self,
        broker: Broker,
        transactions: Transactions,
        door: Door,
        rounds: Rounds,
        pops: PopLedger,
    ) -> None:
        self._rounds = rounds
        self._pops = pops
        self._broker = broker
        self._txn = transactions
        self._door = door

    def families(self, now_ms: int) -> list[Family]:
        """Every figure as it stands."""
        return [
            *self._transactions(),
            *self._checks(now_ms),
            *self._messages(),
            self._broker.latency.family(),
            *self._state(),
            *self._refusals(),
            *gauges(self._broker, now_ms),
            *timer_gauges(self._broker, now_ms),
            *pop_gauges(self._broker, self._pops, now_ms),
        ]

    def refusal(self) -> str:
        """Why no messages are taken; empty when they are."""
        return refusal(self._broker)

    def _refusals(self) -> list[Family]:
        door = self._door
        return [
            _one(
                "escrowmq_denied_requests",
                "counter",
                "Requests refused for want of a right.",
                door.denials.count,
            ),
            _one(
                "escrowmq_limited_requests",
                "counter",
                "Requests refused because their address or account asked for too much.",
                door.rates.refused_count + door.quotas.refused_count,
            ),
            _one(
                "escrowmq_accounts_stale",
                "gauge",
                "1 while a file of accounts cannot be read and the last good one counts.",
                door.is_stale,
            ),
        ]

    def _transactions(self) -> list[Family]:
        meter = self._txn.engine.halves.meter
        return [
            _by_topic("rocketmq_half_messages", "gauge", "Pending half messages.", meter.pending),
            _by_topic(
                "rocketmq_commit_messages", "counter", "Messages committed.", meter.committed
            ),
            _by_topic(
                "rocketmq_rollback_messages", "counter", "Messages dropped.", meter.rolled_back
            ),
            _by_topic(
                "escrowmq_discarded_messages",
                "counter",
                "Messages given up after their last check.",
                meter.expired,
            ),
            Family(
                "rocketmq_finish_message_latency",
                "histogram",
                "Seconds from the half message to its commit.",
                ("topic",),
                tuple(
                    Distribution(
                        (topic,),
                        tuple(zip(_BUCKETS, accumulate(counts), strict=True)),
                        meter.latency_ms[topic] / 1000,
                    )
                    for topic, counts in meter.latency_counts.items()
                ),
            ),
        ]

    def _checks(self, now_ms: int) -> list[Family]:
        engine, checker = self._txn.engine, self._txn.checker
        oldest = engine.halves.pending.oldest()
        age_s = (
            0.0 if oldest is None else (now_ms - engine.halves.pending.row(oldest).stored_ms) / 1000
        )
        groups = checker.parked_groups()
        counters, checks = engine.halves.counters, checker.counters
        return [
            _one("escrowmq_oldest_pending_seconds", "gauge", "Age of the oldest half.", age_s),
            _one("escrowmq_checks_sent", "counter", "Checks handed to a connection.", checks.sent),
            _one("escrowmq_checks_answered", "counter", "Answers to checks.", checks.answered),
            _one(
                "escrowmq_checks_expired",
                "counter",
                "Checks that nobody answered in time.",
                checks.unanswered,
            ),
            _one(
                "escrowmq_contradictory_ends",
                "counter",
                "Ends that contradict the outcome and changed nothing.",
                counters.contradicted,
            ),
            _one(
                "escrowmq_repeated_ends",
                "counter",
                "Ends that were told the outcome again.",
                counters.repeated,
            ),
            _one(
                "escrowmq_quarantined_messages",
                "gauge",
                "Halves that cannot be read.",
                len(engine.halves.quarantine),
            ),
            _one(
                "escrowmq_deserted_groups",
                "gauge",
                "Producer groups with pending halves that nobody answers for.",
                len(groups),
            ),
            Family(
                "escrowmq_parked_messages",
                "gauge",
                "Halves that wait for a producer of their group to connect.",
                ("group",),
                tuple(Sample((group,), len(checker.parked(group))) for group in groups),
            ),
        ]

    def _messages(self) -> list[Family]:
        stats = self._broker.stats
        return [
            _by_topic("rocketmq_messages_in", "counter", "Messages put.", stats.totals(PUT_COUNT)),
            _by_topic("rocketmq_throughput_in", "counter", "Bytes put.", stats.totals(PUT_SIZE)),
            Family(
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
                    for topic, counts, size in stats.sizes()
                ),
            ),
            _by_group("rocketmq_messages_out", "Messages handed out.", stats.totals(GET_COUNT)),
            _by_group("rocketmq_throughput_out", "Bytes handed out.", stats.totals(GET_SIZE)),
            _one(
                "escrowmq_shed_requests",
                "counter",
                "Halves and sends refused because they had waited too long.",
                self._broker.shed_count,
            ),
        ]

    def _state(self) -> list[Family]:
        broker = self._broker
        clients = broker.clients
        consumers = {name: len(group.channels) for name, group in clients.consumers.items()}
        producers = {name: len(channels) for name, channels in clients.producers.items()}
        store = broker.store
        return [
            _one(
                "rocketmq_broker_permission",
                "gauge",
                "4 read, 2 write.",
                broker.settings.permission,
            ),
            _labelled(
                "rocketmq_producer_connections", "Producers by group.", "producer_group", producers
            ),
            _labelled(
                "rocketmq_consumer_connections", "Consumers by group.", "consumer_group", consumers
            ),
            Family(
                "escrowmq_failed_rounds",
                "counter",
                "Background work that ended with an internal error, by part; see the log.",
                ("part",),
                tuple(Sample((name,), count) for name, count in self._rounds.failures.items()),
            ),
            _one(
                "escrowmq_records_set_aside",
                "counter",
                "Delayed or popped messages and their records that make no sense; see the log.",
                broker.set_aside_count(),
            ),
            _one("escrowmq_connections", "gauge", "Open connections.", len(broker.peers)),
            _one(
                "escrowmq_kept_segments",
                "gauge",
                "Log files past their time in which messages wait for their end or their time.",
                store.retention.kept_count,
            ),
            _one("escrowmq_log_end_bytes", "gauge", "End of the log.", store.end_offset),
            _one("escrowmq_log_durable_bytes", "gauge", "Durable so far.", store.durable_offset),
        ]


def _one(name: str, kind: Kind, text: str, value: float) -> Family:
    return Family(name, kind, text, (), (Sample((), value),))


def _by_topic(name: str, kind: Kind, text: str, values: Mapping[str, float]) -> Family:
    samples = tuple(Sample((topic,), value) for topic, value in values.items())
    return Family(name, kind, text, ("topic",), samples)


def _by_group(name: str, text: str, values: Mapping[str, float]) -> Family:
    """Keys are `topic@group`."""
    pairs = [(key.partition("@"), value) for key, value in values.items()]
    samples = tuple(Sample((topic, group), value) for (topic, _, group), value in pairs)
    return Family(name, "counter", text, ("topic", "consumer_group"), samples)


def _labelled(name: str, text: str, label: str, values: Mapping[str, float]) -> Family:
    samples = tuple(Sample((key,), value) for key, value in values.items())
    return Family(name, "gauge", text, (label,), samples)
