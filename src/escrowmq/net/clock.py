"""The only module that reads the clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

_MS_NS: Final = 1_000_000
_JUMP_MIN_NS: Final = 100_000_000
"""The smallest difference that counts as a jump; smaller ones are the time between two readings."""


class SystemClock:
    """The machine's clock, corrected for jumps."""

    def __init__(self) -> None:
        self._ahead_ns = 0
        self._now_ms = self._until_ns = 0
        """The last returned millisecond, and the steady clock's time at which it is over."""
        self._last_ns = self._last_wall_ns = 0
        self._last_steady_ns = 0
        self._on_leap: Callable[[int], None] | None = None

    def now_ms(self) -> int:
        """Return milliseconds since the epoch. The result never goes back, even if the wall clock
        does. This clock then continues to run, slowly, until the wall clock has caught up, so that
        timers still fire."""
        steady_ns = time.monotonic_ns()
        if steady_ns < self._until_ns:
            return self._now_ms
        wall_ns = time.time_ns()
        passed_ns = steady_ns - self._last_steady_ns
        # When the wall clock is corrected, this clock catches up. Otherwise it would be ahead for
        # ever, and messages due at a time would be delivered too early.
        jump_ns = wall_ns - self._last_wall_ns - passed_ns
        leap_ns = 0
        if jump_ns > _JUMP_MIN_NS:
            made_good_ns = min(self._ahead_ns, jump_ns)
            self._ahead_ns -= made_good_ns
            leap_ns = jump_ns - made_good_ns if self._last_ns else 0
        now_ns = wall_ns + self._ahead_ns
        if now_ns < self._last_ns:
            behind_ns = self._last_ns + passed_ns - now_ns
            self._ahead_ns += behind_ns
            now_ns += behind_ns
        self._last_ns, self._last_wall_ns, self._last_steady_ns = now_ns, wall_ns, steady_ns
        self._now_ms, over_ns = divmod(now_ns, _MS_NS)
        self._until_ns = steady_ns + _MS_NS - over_ns
        if leap_ns and self._on_leap is not None:
            self._on_leap(leap_ns // _MS_NS)
        return self._now_ms

    def set_leap_listener(self, on_leap: Callable[[int], None]) -> None:
        """Register a function that is called with the milliseconds by which the clock was set
        forward, before the clock shows it."""
        self._on_leap = on_leap

    def continue_from(self, time_ms: int) -> None:
        """Continue from a time if it is later than now."""
        self._ahead_ns += max(0, time_ms - self.now_ms()) * _MS_NS
        self._until_ns = 0


class LocalZone(tzinfo):
    """The machine's time zone, including daylight saving."""

    def fromutc(self, dt: datetime) -> datetime:
        """Convert a moment to local time."""
        moment = dt.replace(tzinfo=UTC)
        return dt + timedelta(seconds=time.localtime(moment.timestamp()).tm_gmtoff)

    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        """Return the offset of local time from UTC at a local time."""
        if dt is None:
            return None
        seconds = time.mktime((*dt.timetuple()[:8], -1))
        return timedelta(seconds=time.localtime(seconds).tm_gmtoff)

    def dst(self, dt: datetime | None) -> timedelta | None:
        """Return None: not provided."""
        return None if dt is None else timedelta(0)

    def tzname(self, dt: datetime | None) -> str | None:
        """Return None: not provided."""
        return None


def thread_cpu_s() -> float:
    """CPU seconds used by this thread."""
    return time.thread_time()


def steady_ns() -> int:
    """Nanoseconds that never jump (CLOCK_MONOTONIC), the same for all processes of a machine."""
    return time.monotonic_ns()


def steady_s() -> float:
    """Seconds since an arbitrary moment, with the highest resolution."""
    return time.perf_counter()
