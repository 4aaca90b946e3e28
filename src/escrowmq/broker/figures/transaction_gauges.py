"""Metrics of transactions: pending ones, outcomes of ended ones, and checks."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Final

from escrowmq.base.measure import Distribution, Family, Sample, by_topic, unlabelled
from escrowmq.txn.transaction_counters import LATENCY_BOUNDS_S
from escrowmq.txn.transactions import Transactions

PENDING_AGES_S: Final = (60, 300, 1_800, 7_200, 86_400)

_BUCKETS: Final = (*map(float, LATENCY_BOUNDS_S), math.inf)


def families_of(transactions: Transactions, now_ms: int) -> list[Family]:
    """Return all transaction metrics."""
    return [*_ended(transactions), *_checked(transactions, now_ms)]


def _ended(transactions: Transactions) -> list[Family]:
    meter = transactions.engine.halves.meter
    return [
        by_topic("rocketmq_half_messages", "gauge", "Pending half messages.", meter.pending),
        by_topic("rocketmq_commit_messages", "counter", "Messages committed.", meter.committed),
        by_topic("rocketmq_rollback_messages", "counter", "Messages dropped.", meter.rolled_back),
        by_topic(
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


def _ages(transactions: Transactions, now_ms: int) -> Family:
    stored_before = transactions.engine.halves.pending.pages.count_stored_before
    return Family(
        "escrowmq_pending_older_than",
        "gauge",
        "Pending half messages older than this many seconds.",
        ("seconds",),
        tuple(
            Sample((str(age_s),), stored_before(now_ms - age_s * 1000)) for age_s in PENDING_AGES_S
        ),
    )


def _checked(transactions: Transactions, now_ms: int) -> list[Family]:
    engine, checker = transactions.engine, transactions.checker
    oldest = engine.halves.pending.oldest_offset()
    age_s = 0.0 if oldest is None else (now_ms - engine.halves.pending.row(oldest).stored_ms) / 1000
    groups = checker.parked_groups()
    counters, checks = engine.halves.counters, checker.counters
    return [
        unlabelled("escrowmq_oldest_pending_seconds", "gauge", "Age of the oldest half.", age_s),
        _ages(transactions, now_ms),
        unlabelled(
            "escrowmq_checks_sent", "counter", "Checks passed to a connection.", checks.sent
        ),
        unlabelled("escrowmq_checks_answered", "counter", "Answers to checks.", checks.answered),
        unlabelled(
            "escrowmq_checks_unknown",
            "counter",
            "Answers to checks that left the transaction open.",
            checks.unknown,
        ),
        unlabelled(
            "escrowmq_checks_expired",
            "counter",
            "Checks that were not answered in time.",
            checks.unanswered,
        ),
        unlabelled(
            "escrowmq_contradictory_ends",
            "counter",
            "ENDs that contradicted the outcome and changed nothing.",
            counters.contradicted,
        ),
        unlabelled(
            "escrowmq_repeated_ends",
            "counter",
            "Repeated ENDs with the same outcome.",
            counters.repeated,
        ),
        unlabelled(
            "escrowmq_quarantined_messages",
            "gauge",
            "Halves that cannot be read.",
            len(engine.halves.quarantine),
        ),
        unlabelled(
            "escrowmq_deserted_groups",
            "gauge",
            "Producer groups with pending halves but no live producer.",
            len(groups),
        ),
        Family(
            "escrowmq_parked_messages",
            "gauge",
            "Halves that wait for a producer of their group to connect.",
            ("group",),
            tuple(Sample((group,), checker.parked_count(group)) for group in groups),
        ),
    ]
