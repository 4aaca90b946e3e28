"""How much may be on its way, in both directions: windows, and what a flood is."""

from __future__ import annotations

from typing import Final

from escrowmq.http2.frames import WINDOW_MAX, ConnectionFault, Error

MS_A_SECOND: Final = 1000


class Inflow:
    """What the other end may still send. Room is given back in halves of the window: an update for
    each frame would cost more than the frame."""

    __slots__ = ("_given", "_taken", "_window")

    def __init__(self, window: int) -> None:
        self._window = window
        self._taken = 0

    def take(self, size: int) -> bool:
        """Bytes have come; whether they were allowed to."""
        self._taken += size
        return self._taken <= self._window

    def give_back(self) -> int:
        """By how much the window is to be opened now; 0 while it is open enough."""
        taken = self._taken
        if taken < self._window >> 1:
            return 0
        self._taken = 0
        return taken


class Outflow:
    """What this end may still send; below zero when the other end made its windows smaller."""

    __slots__ = ("left",)

    def __init__(self, window: int) -> None:
        self.left = window

    def open(self, size: int) -> bool:
        """The other end gave room; whether it was allowed so much."""
        self.left += size
        return self.left <= WINDOW_MAX


class Allowance:
    """How often something cheap to send and costly to serve may come: a stock that is used up by
    each, and grows with time and with work that was done."""

    __slots__ = ("_left", "_most", "_per_s", "_since_ms", "_what")

    def __init__(self, what: str, *, most: int, per_s: int) -> None:
        self._what = what
        self._most = self._left = most
        self._per_s = per_s
        self._since_ms = -1

    def earn(self, count: int) -> None:
        """Work was done that such frames belong to."""
        self._left = min(self._most, self._left + count)

    def spend(self, now_ms: int) -> None:
        """One has come. Raises when there were too many."""
        if self._since_ms < 0:
            self._since_ms = now_ms
        self._left -= 1
        if self._left >= 0:
            return
        assert now_ms >= self._since_ms, (now_ms, self._since_ms)
        grown = (now_ms - self._since_ms) * self._per_s // MS_A_SECOND
        self._since_ms = now_ms
        self._left = min(self._most, self._left + grown)
        if self._left < 0:
            raise ConnectionFault(
                Error.ENHANCE_YOUR_CALM,
                f"too many {self._what}: {self._most} at once and {self._per_s} a second allowed",
            )
