"""Distributions of how far ahead delayed messages are due, and of the delays they were sent with.

RocketMQ's metrics, with its bounds: TimerMetrics.timerDist, and the view of
DefaultStoreMetricsManager.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import accumulate
from typing import Final

from escrowmq.base.measure import Distribution

AHEAD_S: Final = (5, 60, 300, 900, 3_600, 14_400, 28_800, 86_400)
"""Upper bounds in seconds of the distribution of how far ahead waiting messages are due."""

_SLOT_MS: Final = 5_000
"""The span for which waiting messages are counted. Each bound is a multiple of it."""

DELAYS_S: Final = (60.0, 600.0, 3_600.0, 43_200.0, 86_400.0, 259_200.0, math.inf)
TOPICS_MAX: Final = 1_000
"""The most topics that have a distribution of delays."""


class DueTimes:
    """Counts waiting messages by due time, in spans of five seconds. There are at most 51,840 spans
    within the longest delay that RocketMQ allows by default."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def add(self, due_ms: int) -> None:
        """Count a message that begins to wait."""
        slot = due_ms // _SLOT_MS
        self._counts[slot] = self._counts.get(slot, 0) + 1

    def drop(self, due_ms: int) -> None:
        """Uncount a message that no longer waits."""
        slot = due_ms // _SLOT_MS
        left = self._counts[slot] - 1
        if left:
            self._counts[slot] = left
        else:
            del self._counts[slot]

    def ahead_counts(self, now_ms: int) -> dict[int, int]:
        """Return the number of waiting messages for each bound in AHEAD_S, to within five seconds.
        Overdue messages count as due now. Those due in more than a day are not counted, as in
        RocketMQ."""
        now = now_ms // _SLOT_MS
        bounds = [bound * 1_000 // _SLOT_MS for bound in AHEAD_S]
        found = [0] * len(bounds)
        for slot, count in self._counts.items():
            place = bisect_left(bounds, slot - now + 1)
            if place < len(found):
                found[place] += count
        return dict(zip(AHEAD_S, found, strict=True))


class DelayDistributions:
    """The distributions of requested delays by topic, since the start."""

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}
        self._sums_s: dict[str, int] = {}

    def count_delay(self, topic: str, delay_s: int) -> None:
        """Count a stored message with this delay."""
        counts = self._counts.get(topic)
        if counts is None:
            if len(self._counts) >= TOPICS_MAX:
                return
            counts = self._counts[topic] = [0] * len(DELAYS_S)
            self._sums_s[topic] = 0
        counts[bisect_left(DELAYS_S, delay_s)] += 1
        self._sums_s[topic] += delay_s

    def forget_topic(self, topic: str) -> None:
        """Remove the distribution of a deleted topic."""
        self._counts.pop(topic, None)
        self._sums_s.pop(topic, None)

    def distributions(self, *before: str) -> tuple[Distribution, ...]:
        """Return a distribution for each topic, with `before` as its first labels."""
        return tuple(
            Distribution(
                (*before, topic),
                tuple(zip(DELAYS_S, accumulate(counts), strict=True)),
                self._sums_s[topic],
            )
            for topic, counts in self._counts.items()
        )
