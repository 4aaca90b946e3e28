"""How much may be on its way, in both directions: windows."""

from __future__ import annotations

from escrowmq.http2.frames import WINDOW_MAX


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

    def resize(self, more: int, most: int) -> bool:
        """The other end made its windows larger, or smaller, and by at most so much on the way to
        that; whether it was allowed to."""
        is_allowed = self.left + most <= WINDOW_MAX
        self.left += more
        return is_allowed
