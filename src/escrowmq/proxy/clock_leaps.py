"""Remembers when the machine's clock was set forward, and by how much."""

from __future__ import annotations

from collections import deque
from typing import Final

_LEAPS_MAX: Final = 64


class ClockLeaps:
    """The most recent forward jumps of the clock."""

    def __init__(self) -> None:
        self._leaps: deque[tuple[int, int]] = deque(maxlen=_LEAPS_MAX)

    def record_leap(self, by_ms: int, now_ms: int) -> None:
        """Remember a forward jump of the clock."""
        self._leaps.append((now_ms, by_ms))

    def leapt_ms_since(self, at_ms: int) -> int:
        """Return how far the clock was set forward since `at_ms`, a time by the same clock."""
        return sum(by_ms for then_ms, by_ms in self._leaps if at_ms < then_ms + by_ms)
