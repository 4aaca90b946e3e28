"""Detects floods of frames that are cheap to send and costly to serve (resets, pings, settings),
and ends connections with them."""

from __future__ import annotations

from typing import Final

from escrowmq.http2.frames import ConnectionFault, ErrorCode

MS_A_SECOND: Final = 1000


class FloodBudget:
    """A budget for frames that are cheap to send and costly to serve. Each frame uses some of it;
    time and useful work add to it."""

    __slots__ = ("_left", "_most", "_per_s", "_since_ms", "_what")

    def __init__(self, what: str, *, most: int, per_s: int) -> None:
        self._what = what
        self._most = self._left = most
        self._per_s = per_s
        self._since_ms = -1

    def add_budget(self, count: int) -> None:
        """Add to the budget, for work with which such frames are normal."""
        self._left = min(self._most, self._left + count)

    def spend_budget(self, now_ms: int, count: int = 1) -> None:
        """Subtract the cost of such a frame, or of several. Raises ConnectionFault if the budget is
        used up."""
        if self._since_ms < 0:
            self._since_ms = now_ms
        self._left -= count
        if self._left >= 0:
            return
        assert now_ms >= self._since_ms, (now_ms, self._since_ms)
        grown = (now_ms - self._since_ms) * self._per_s // MS_A_SECOND
        self._since_ms = now_ms
        self._left = min(self._most, self._left + grown)
        if self._left < 0:
            raise ConnectionFault(
                ErrorCode.ENHANCE_YOUR_CALM,
                f"too many {self._what}: {self._most} at once and {self._per_s} a second allowed",
            )
