"""Samples of where the log ended at which time: for its growth rate, and for the age of a copy's
end."""

from __future__ import annotations

from collections import deque
from typing import Final

SAMPLE_MS: Final = 50
_SAMPLES_MAX: Final = 400
_RATE_MS: Final = 1_000
"""The shortest time over which the rate is computed."""


class LogGrowth:
    """Samples of the log's end over time, the oldest first."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque([(0, 0)], maxlen=_SAMPLES_MAX)

    def add_sample(self, end: int, now_ms: int) -> None:
        """Record where the log ends now."""
        last_ms, last_end = self._samples[-1]
        if end != last_end and now_ms >= last_ms + SAMPLE_MS:
            self._samples.append((now_ms, end))

    def time_reached_ms(self, end: int) -> int:
        """Return the time of the last sample that is not after this log offset; 0 if there is
        none."""
        return next((ms for ms, sampled in reversed(self._samples) if sampled <= end), 0)

    def rate(self, end: int, now_ms: int) -> int:
        """Return the log's growth in bytes a second, from the oldest sample until now."""
        since_ms, since = next((each for each in self._samples if each[0]), (now_ms, end))
        return (end - since) * 1_000 // max(now_ms - since_ms, _RATE_MS)
