"""The one place that reads the clock."""

from __future__ import annotations

import time


class SystemClock:
    """The machine's clock."""

    def __init__(self) -> None:
        self._last_ms = 0

    def now_ms(self) -> int:
        """Milliseconds since the epoch; never goes back, even when the wall clock does."""
        now_ms = time.time_ns() // 1_000_000
        if now_ms > self._last_ms:
            self._last_ms = now_ms
        return self._last_ms


def local_hour(now_ms: int) -> int:
    """The hour of the day at this machine's place."""
    return time.localtime(now_ms // 1000).tm_hour
