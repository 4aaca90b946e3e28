"""Metrics of transactions: pending ones, outcomes of ended ones, and checks."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Final

from escrowmq.base.measure import (
    Distribution,
    MetricFamily,
    Sample,
    metric_by_topic,
    unlabelled_metric,
)
from escrowmq.txn.transaction_counters import LATENCY_BOUNDS_S, HalfCounters
from escrowmq.txn.transactions import Transactions

PENDING_AGES_S: Final = (60, 300, 1_800, 7_200, 86_400)

_BUCKETS: Final = (*map(float, LATENCY_BOUNDS_S), math.inf)


def transaction_families(transactions: Transactions, now_ms: int) -> list[MetricFamily]:
    """Return all transaction metrics."""
    return [*_outcome_families(transactions), *_check_families(transactions, now_ms)]


def _outcome_families(transactions: Transactions) -> list[MetricFamily]:
    meter = transactions.engine.halves.meter
    return [
        metric_by_topic("rocketmq_half_messages", "gauge", "Pending half messages.", meter.pending),
        metric_by_topic(
            "rocketmq_commit_messages", "counter", "Messages committed.", meter.committed
        ),
        metric_by_topic(
            "rocketmq_rollback_messages", "counter", "Messages dropped.", meter.rolled_back
        ),
        metric_by_topic(
            "escrowmq_discarded_messages",
            "counter",
            "Messages given up after their last check.",
            meter.expired,
        ),
        MetricFamily(
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


def _age_family(transactions: Transactions, now_ms: int) -> MetricFamily:
    stored_before = transactions.engine.halves.pending.pages.count_stored_before
    return MetricFamily(
        "escrowmq_pending_older_than",
        "gauge",
        "Pending half messages older than this many seconds.",
        ("seconds",),
        tuple(
            Sample((str(age_s),), stored_before(now_ms - age_s * 1000)) for age_s in PENDING_AGES_S
        ),
    )


def _end_families(counters: HalfCounters) -> list[MetricFamily]:
    """Return the metrics of ENDs that changed nothing."""
    return [
        unlabelled_metric(
            "escrowmq_contradictory_ends",
            "counter",
            "ENDs that contradicted the outcome and changed nothing.",
            counters.contradicted,
        ),
        unlabelled_metric(
            "escrowmq_repeated_ends",
            "counter",
            "Repeated ENDs with the same outcome.",
            counters.repeated,
        ),
    ]


def _check_families(transactions: Transactions, now_ms: int) -> list[MetricFamily]:
    engine, checker = transactions.engine, transactions.checker
    oldest = engine.halves.pending.oldest_offset()
    age_s = 0.0 if oldest is None else (now_ms - engine.halves.pending.row(oldest).stored_ms) / 1000
    groups = checker.parked_groups()
    checks = checker.counters
    return [
        unlabelled_metric(
            "escrowmq_oldest_pending_seconds", "gauge", "Age of the oldest half.", age_s
        ),
        _age_family(transactions, now_ms),
        unlabelled_metric(
            "escrowmq_checks_sent", "counter", "Checks passed to a connection.", checks.sent
        ),
        unlabelled_metric(
            "escrowmq_checks_answered", "counter", "Answers to checks.", checks.answered
        ),
        unlabelled_metric(
            "escrowmq_checks_unknown",
            "counter",
            "Answers to checks that left the transaction open.",
            checks.unknown,
        ),
        unlabelled_metric(
            "escrowmq_checks_expired",
            "counter",
            "Checks that were not answered in time.",
            checks.unanswered,
        ),
        *_end_families(engine.halves.counters),
        unlabelled_metric(
            "escrowmq_quarantined_messages",
            "gauge",
            "Halves that cannot be read.",
            len(engine.halves.quarantine),
        ),
        unlabelled_metric(
            "escrowmq_deserted_groups",
            "gauge",
            "Producer groups with pending halves but no live producer.",
            len(groups),
        ),
        MetricFamily(
            "escrowmq_parked_messages",
            "gauge",
            "Halves that wait for a producer of their group to connect.",
            ("group",),
            tuple(Sample((group,), checker.parked_count(group)) for group in groups),
        ),
    ]
