"""Polls for the next input for a moment before the loop sleeps, if the previous input came quickly.
Sleeping and waking take tens of microseconds, which a client that sends one request after another
would pay each time. Polling costs no more than that, and stops if inputs come later."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from escrowmq.net.clock import steady_s

_CREDIT_MAX: Final = 64
_MISS: Final = 16
"""The credit that an unsuccessful poll costs: the number of inputs that must come quickly before
the next poll. If the sender has no CPU core of its own, every poll is unsuccessful."""


class InputPolling:
    """Polls for one core's next input before the event loop sleeps. `span_s` is the longest poll; 0
    means no polling."""

    def __init__(self, span_s: float, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        # On a single CPU core, polling would make the sender wait.
        self.span_s = span_s if len(os.sched_getaffinity(0)) > 1 else 0.0
        """The longest poll; if it is 0, `note_input` need not be called."""
        self._credit = 0
        self._done_s = 0.0
        self._is_polling = False
        self.polled_s = 0.0
        """The total time spent on polling, which does not count as work."""

    def note_input(self) -> None:
        """Note an input. If it came quickly, it earns credit for the next poll."""
        gap_s = steady_s() - self._done_s
        # If the loop slept, waking up has delayed the input.
        if gap_s <= (self.span_s if self._is_polling else 2 * self.span_s):
            self._credit = min(self._credit + 1, _CREDIT_MAX)
        if self._is_polling:
            self.polled_s += gap_s

    def poll_if_credited(self) -> None:
        """Poll for the next input, if there is credit for it. Call it when an input is
        processed."""
        self._done_s = steady_s()
        if self._credit > 0 and not self._is_polling:
            self._is_polling = True
            self._call_soon(self._poll)

    def _poll(self) -> None:
        """Poll again, until the time is over. Each call is one turn of the event loop, which
        handles input and does not sleep."""
        if self._credit > 0 and steady_s() - self._done_s < self.span_s:
            self._call_soon(self._poll)
            return
        self._is_polling = False
        self._credit -= _MISS
        self.polled_s += self.span_s

    def stop(self) -> None:
        """Stop polling."""
        self.span_s = 0.0
        self._credit = 0
