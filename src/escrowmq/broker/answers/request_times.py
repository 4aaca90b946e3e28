"""Measures the durations of requests, as RocketMQ's exporter does (RemotingMetricsManager).

Most requests are answered within the millisecond in which they arrived. To count one of
these costs one addition, in `Answers.send_now` itself, and no call.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from itertools import accumulate
from typing import Final

from escrowmq.base.codes import Request, Response
from escrowmq.base.measure import Distribution, MetricFamily
from escrowmq.broker.incoming_request import RequestRow

BOUNDS_MS: Final = (1, 3, 5, 7, 10, 100, 1_000, 2_000, 3_000)
_BOUNDS: Final = (*map(float, BOUNDS_MS), math.inf)

_Kind = tuple[int, int, int, bool]
"""Identifies a histogram: codes of request and answer, whether the request was one-way (0: no), and
whether it was held."""


def _code_names(codes: type) -> dict[int, str]:
    """Return RocketMQ's names of codes: the constants in lower case
    (RemotingHelper.getRequestCodeDesc)."""
    return {code: name.lower() for name, code in vars(codes).items() if name.isupper()}


_REQUESTS: Final = _code_names(Request)
_RESPONSES: Final = _code_names(Response)


class RequestLatency:
    """Latency histograms of one broker's requests. All unknown requests share one kind, so that the
    number of kinds is bounded."""

    def __init__(self) -> None:
        self.immediate_counts: defaultdict[tuple[int, int, int], int] = defaultdict(int)
        """The number of requests answered within the millisecond of their arrival, by request code,
        answer code and one-way flag (0: not one-way)."""
        self._counts: dict[_Kind, list[int]] = {}
        self._sums_ms: defaultdict[_Kind, int] = defaultdict(int)

    def record(self, row: RequestRow, answered: int, took_ms: int, *, is_one_way: int) -> None:
        """Record a request that took at least a millisecond. A read that took so long was held for
        messages."""
        self._add_to_histogram((row.code, answered, is_one_way, row.is_read), took_ms, 1)

    def record_many(self, code: int, answered: int, took_ms: int, count: int) -> None:
        """Record requests that took the same time. Only for requests that are neither one-way nor
        reads."""
        if took_ms <= 0:
            self.immediate_counts[code, answered, 0] += count
            return
        self._add_to_histogram((code, answered, 0, False), took_ms, count)

    def _add_to_histogram(self, kind: _Kind, took_ms: int, count: int) -> None:
        counts = self._counts.get(kind)
        if counts is None:
            counts = self._counts[kind] = [0] * len(_BOUNDS)
        counts[bisect_left(BOUNDS_MS, took_ms)] += count
        self._sums_ms[kind] += took_ms * count

    def metric_family(self) -> MetricFamily:
        """Return the histograms as a metric family."""
        found = {kind: list(counts) for kind, counts in self._counts.items()}
        for of, count in self.immediate_counts.items():
            found.setdefault((*of, False), [0] * len(_BOUNDS))[0] += count
        samples = []
        for (code, answered, is_one_way, is_held), counts in sorted(found.items()):
            labels = (
                "remoting",
                _REQUESTS.get(code, "other"),
                _RESPONSES.get(answered, str(answered)),
                "true" if is_held else "false",
                "oneway" if is_one_way else "success",
            )
            buckets = tuple(zip(_BOUNDS, accumulate(counts), strict=True))
            sum_ms = self._sums_ms.get((code, answered, is_one_way, is_held), 0)
            samples.append(Distribution(labels, buckets, sum_ms))
        return MetricFamily(
            "rocketmq_rpc_latency_milliseconds",
            "histogram",
            "Time from a request until its answer is passed to the connection.",
            ("protocol_type", "request_code", "response_code", "is_long_polling", "result"),
            tuple(samples),
        )
