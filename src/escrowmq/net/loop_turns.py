"""Measures the length of the event loop's turns: no other input is served during a turn."""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import accumulate
from typing import Final

from escrowmq.base.measure import Distribution, MetricFamily, Sample

_BOUNDS_S: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, math.inf)


class SpanHistogram:
    """Counts spans of time, such as turns of the loop, by their length."""

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text
        self._counts = [0] * len(_BOUNDS_S)
        self._sum_s = 0.0
        self.longest_s = 0.0

    def record(self, span_s: float) -> None:
        """Record the length of one span."""
        self._counts[bisect_left(_BOUNDS_S, span_s)] += 1
        self._sum_s += span_s
        self.longest_s = max(self.longest_s, span_s)

    def metric_families(self) -> list[MetricFamily]:
        """Return the metrics: the distribution of the lengths, and the longest span since the
        start."""
        buckets = tuple(zip(_BOUNDS_S, accumulate(self._counts), strict=True))
        return [
            MetricFamily(
                f"{self._name}_seconds",
                "histogram",
                self._text,
                samples=(Distribution((), buckets, self._sum_s),),
            ),
            MetricFamily(
                f"{self._name}_longest_seconds",
                "gauge",
                "The longest since the start.",
                samples=(Sample((), self.longest_s),),
            ),
        ]


def turn_lengths() -> SpanHistogram:
    """Return an empty histogram for the lengths of the loop's turns. They are measured in CPU time,
    so that time in which the machine did not run the process is not counted."""
    text = "Computing time of each turn of the event loop."
    return SpanHistogram("escrowmq_turn", text)


def sync_lengths() -> SpanHistogram:
    """Return an empty histogram for the lengths of syncs: from the request until the loop knows
    that the files are durable."""
    return SpanHistogram("escrowmq_sync", "Time until what was written was durable (fdatasync).")
