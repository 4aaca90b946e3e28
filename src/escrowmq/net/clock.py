"""The one place that reads the clock."""

from __future__ import annotations

import time


class SystemClock:
    """The machine's clock, as far as one may trust it."""

    def __init__(self) -> None:
        self._ahead_ns = 0
        self._last_ns = 0
        self._last_steady_ns = 0

    def now_ms(self) -> int:
        """Milliseconds since the epoch; never goes back, even when the wall clock does. It goes on
        at its pace then, as far ahead as it was: nothing that is due waits for the wall clock."""
        now_ns = time.time_ns() + self._ahead_ns
        steady_ns = time.monotonic_ns()
        if now_ns < self._last_ns:
            behind_ns = self._last_ns + steady_ns - self._last_steady_ns - now_ns
            self._ahead_ns += behind_ns
            now_ns += behind_ns
        self._last_ns, self._last_steady_ns = now_ns, steady_ns
        return now_ns // 1_000_000

    def go_on_from(self, time_ms: int) -> None:
        """Count on from a time, if it is later than now."""
        self._ahead_ns += max(0, time_ms - self.now_ms()) * 1_000_000


def worked_s() -> float:
    """Seconds that this thread has computed: a machine that gives it no time does not count."""
    return time.thread_time()
