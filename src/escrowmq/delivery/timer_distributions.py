"""How far ahead delayed messages are due, and were when they were stored.

RocketMQ's metrics, with its bounds: TimerMetrics.timerDist, and the view of
DefaultStoreMetricsManager."""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import accumulate
from typing import Final

from escrowmq.base.measure import Distribution

AHEAD_S: Final = (5, 60, 300, 900, 3_600, 14_400, 28_800, 86_400)
"""Waiting messages are counted between one of these and the one before."""

_SLOT_MS: Final = 5_000
"""Each of those is a multiple of it."""

DELAYS_S: Final = (60.0, 600.0, 3_600.0, 43_200.0, 86_400.0, 259_200.0, math.inf)
TOPICS_MAX: Final = 1_000
"""Topics with a distribution of their own; later ones have none."""


class DueTimes:
    """When waiting messages are due: numbers by spans of five seconds, of which there are 51,840
    within the longest delay that RocketMQ allows by default."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def add(self, due_ms: int) -> None:
        """Count one more waiting message."""
        slot = due_ms // _SLOT_MS
        self._counts[slot] = self._counts.get(slot, 0) + 1

    def drop(self, due_ms: int) -> None:
        """Count one waiting message fewer."""
        slot = due_ms // _SLOT_MS
        left = self._counts[slot] - 1
        if left:
            self._counts[slot] = left
        else:
            del self._counts[slot]

    def ahead(self, now_ms: int) -> dict[int, int]:
        """Waiting messages by the bounds AHEAD_S, to within five seconds. Overdue messages count as
        due at once; those due in more than a day are not counted, as in RocketMQ."""
        now = now_ms // _SLOT_MS
        bounds = [bound * 1_000 // _SLOT_MS for bound in AHEAD_S]
        found = [0] * len(bounds)
        for slot, count in self._counts.items():
            place = bisect_left(bounds, slot - now + 1)
            if place < len(found):
                found[place] += count
        return dict(zip(AHEAD_S, found, strict=True))


class Delays:
    """Requested delays by topic, since the start."""

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}
        self._sums_s: dict[str, int] = {}

    def note(self, topic: str, delay_s: int) -> None:
        """Count a stored message with this delay."""
        counts = self._counts.get(topic)
        if counts is None:
            if len(self._counts) >= TOPICS_MAX:
                return
            counts = self._counts[topic] = [0] * len(DELAYS_S)
            self._sums_s[topic] = 0
        counts[bisect_left(DELAYS_S, delay_s)] += 1
        self._sums_s[topic] += delay_s

    def forget(self, topic: str) -> None:
        """A topic was deleted."""
        self._counts.pop(topic, None)
        self._sums_s.pop(topic, None)

    def distributions(self, *before: str) -> tuple[Distribution, ...]:
        """By topic, with some labels before it."""
        return tuple(
            Distribution(
                (*before, topic),
                tuple(zip(DELAYS_S, accumulate(counts), strict=True)),
                self._sums_s[topic],
            )
            for topic, counts in self._counts.items()
        )
