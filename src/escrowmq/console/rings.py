"""Metrics of the last hour, each in a ring of fixed length that drops the oldest value."""

from __future__ import annotations

import math
from array import array
from collections import OrderedDict
from typing import Final

STEP_S: Final = 2.0
"""Interval in seconds at which metrics are requested."""

SIZE: Final = 1_800
"""Number of values in a ring: one hour."""

SERIES_MAX: Final = 400
"""The most stored curves. Beyond it, the one that was not viewed for longest is dropped."""

UNKNOWN: Final = math.nan


class HistoryRing:
    """The values of one curve in the last hour. A moment without a known value is a gap."""

    __slots__ = ("_count", "_next", "_tick", "_values")

    def __init__(self) -> None:
        self._values = array("d", bytes(8 * SIZE))
        self._next = 0
        self._count = 0
        self._tick = -1

    def add_value(self, tick: int, value: float | None) -> None:
        """Add the value of the moment `tick`. Moments since the last added one become gaps."""
        for _ in range(min(SIZE, tick - self._tick - 1) if self._count else 0):
            self._append(UNKNOWN)
        if tick > self._tick:
            self._append(UNKNOWN if value is None else value)
            self._tick = tick

    def _append(self, value: float) -> None:
        self._values[self._next] = value
        self._next = (self._next + 1) % SIZE
        self._count = min(SIZE, self._count + 1)

    def newest_values(self, count: int) -> list[float | None]:
        """Return up to `count` of the newest values, the oldest first; None where unknown."""
        count = min(count, self._count)
        places = ((self._next - count + nth) % SIZE for nth in range(count))
        values = (self._values[place] for place in places)
        return [None if math.isnan(value) else value for value in values]


class HistoryRings:
    """The curves of the last hour, by name."""

    def __init__(self) -> None:
        self._rings: OrderedDict[str, HistoryRing] = OrderedDict()

    def add_value(self, name: str, tick: int, value: float | None) -> None:
        """Add the value of a moment to a curve. Moments are numbered; one is `STEP_S` long."""
        ring = self._rings.get(name)
        if ring is None:
            while len(self._rings) >= SERIES_MAX:
                self._rings.popitem(last=False)
            ring = self._rings[name] = HistoryRing()
        ring.add_value(tick, value)
        self._rings.move_to_end(name)

    def newest_values(self, name: str, count: int = SIZE) -> list[float | None]:
        """Return up to `count` of the newest values of a curve; empty if there is no such curve."""
        ring = self._rings.get(name)
        return [] if ring is None else ring.newest_values(count)
