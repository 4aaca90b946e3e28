"""How long the event loop was at the inputs that it found together: nobody else is served then."""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import accumulate
from typing import Final

from escrowmq.base.measure import Distribution, Family, Sample

_BOUNDS_S: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, math.inf)


class Turns:
    """Counts turns by their length, in time that was computed: a machine that gives the process no
    time does not count."""

    def __init__(self) -> None:
        self._counts = [0] * len(_BOUNDS_S)
        self._sum_s = 0.0
        self.longest_s = 0.0

    def note(self, span_s: float) -> None:
        """A turn is over."""
        self._counts[bisect_left(_BOUNDS_S, span_s)] += 1
        self._sum_s += span_s
        self.longest_s = max(self.longest_s, span_s)

    def families(self) -> list[Family]:
        """Figures for whoever watches."""
        buckets = tuple(zip(_BOUNDS_S, accumulate(self._counts), strict=True))
        return [
            Family(
                "escrowmq_turn_seconds",
                "histogram",
                "Time that the loop computed between looks at its timers while there was work.",
                samples=(Distribution((), buckets, self._sum_s),),
            ),
            Family(
                "escrowmq_turn_longest_seconds",
                "gauge",
                "The longest of them since the start.",
                samples=(Sample((), self.longest_s),),
            ),
        ]
