"""Before the loop sleeps it looks for the next input once more, for a moment, when the one before
came at once. To sleep and be woken takes tens of microseconds, which who sends one request after
another pays each time; not to sleep costs no more than that, and inputs that come later than that
are not waited for so.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from escrowmq.net.clock import steady_s

_CREDIT_MAX: Final = 64
_MISS: Final = 16
"""What looking in vain takes from the credit: as many inputs have to come at once before it is
tried again. Where the sender has no core of its own, all of it is in vain."""


class IdleSpin:
    """Of one core. `span_s` is how long it looks at most; 0: never."""

    def __init__(self, span_s: float, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        # On a single core whoever is to send would have to wait for us.
        self.span_s = span_s if len(os.sched_getaffinity(0)) > 1 else 0.0
        """0: it is not to be told of inputs."""
        self._credit = 0
        self._done_s = 0.0
        self._is_looking = False
        self.looked_s = 0.0
        """How long it looked in all, which is no work."""

    def came(self) -> None:
        """An input is there."""
        gap_s = steady_s() - self._done_s
        # Asleep it came later by what waking up takes.
        if gap_s <= (self.span_s if self._is_looking else 2 * self.span_s):
            self._credit = min(self._credit + 1, _CREDIT_MAX)
        if self._is_looking:
            self.looked_s += gap_s

    def done(self) -> None:
        """It has been worked on: look for the next, if that pays."""
        self._done_s = steady_s()
        if self._credit > 0 and not self._is_looking:
            self._is_looking = True
            self._call_soon(self._look)

    def _look(self) -> None:
        """One turn of the loop, which finds what has come, and does not sleep."""
        if self._credit > 0 and steady_s() - self._done_s < self.span_s:
            self._call_soon(self._look)
            return
        self._is_looking = False
        self._credit -= _MISS
        self.looked_s += self.span_s

    def stop(self) -> None:
        """Look no more."""
        self.span_s = 0.0
        self._credit = 0
