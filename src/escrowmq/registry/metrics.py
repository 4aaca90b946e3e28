"""A name server's metrics. RocketMQ's has none; all names are ours."""

from __future__ import annotations

from collections.abc import Iterator

from escrowmq.base.background_rounds import BackgroundRounds
from escrowmq.base.measure import KeyedCounts, MetricFamily, Sample
from escrowmq.registry.route_table import RouteTable


class RequestCounts:
    """Counts requests and refusals by request code."""

    def __init__(self) -> None:
        self.requests = KeyedCounts()
        self.refused = KeyedCounts()


def metric_families(
    routes: RouteTable, *, connections: int, asks: RequestCounts, rounds: BackgroundRounds
) -> Iterator[MetricFamily]:
    """Yield all metrics with their current values."""
    sizes = routes.sizes()
    for name, text, value in (
        ("clusters", "Clusters with a broker that lives.", sizes.clusters),
        ("brokers", "Brokers that live.", sizes.brokers),
        ("gone_brokers", "Brokers that left within the last hour.", len(routes.gone)),
        ("topics", "Topics with a route.", sizes.topics),
        ("routes", "Topics of each broker, together.", sizes.routes),
        ("connections", "Open connections.", connections),
    ):
        samples = (Sample((), value),)
        yield MetricFamily(f"escrowmq_nameserver_{name}", "gauge", text, (), samples)
    for name, text, counts in (
        ("requests", "Requests, by code.", asks.requests),
        ("refused_requests", "Requests refused because a right is missing, by code.", asks.refused),
    ):
        yield MetricFamily(
            f"escrowmq_nameserver_{name}", "counter", text, ("code",), counts.samples()
        )
    yield MetricFamily(
        "escrowmq_failed_rounds",
        "counter",
        "Background work that ended with an internal error, by part; see the log.",
        ("part",),
        tuple(Sample((part,), count) for part, count in rounds.failures.items()),
    )
