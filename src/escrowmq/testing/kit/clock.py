"""A clock that stands still."""

from __future__ import annotations

import time


class StillClock:
    """Shows the time at which it was made, until `continue_from` moves it."""

    def __init__(self) -> None:
        self._now_ms = time.time_ns() // 1_000_000

    def now_ms(self) -> int:
        """Return the shown time in ms since the epoch (Clock.now_ms)."""
        return self._now_ms

    def continue_from(self, time_ms: int) -> None:
        """Show a later time; do nothing for an earlier one."""
        self._now_ms = max(self._now_ms, time_ms)
