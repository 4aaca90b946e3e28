"""Flow-control windows in both directions."""

from __future__ import annotations

from escrowmq.http2.frames import WINDOW_MAX


class Inflow:
    """The number of bytes that the other end may still send. The window is opened again when half
    of it is used, because an update per frame would cost more than the frame."""

    __slots__ = ("_given", "_taken", "_window")

    def __init__(self, window: int) -> None:
        self._window = window
        self._taken = 0

    def take(self, size: int) -> bool:
        """Count received bytes; return whether they were allowed."""
        self._taken += size
        return self._taken <= self._window

    def give_back(self) -> int:
        """Return the window update to send now; 0 while the window is large enough."""
        taken = self._taken
        if taken < self._window >> 1:
            return 0
        self._taken = 0
        return taken


class Outflow:
    """The number of bytes that this end may still send; negative after the other end reduced its
    windows."""

    __slots__ = ("left",)

    def __init__(self, window: int) -> None:
        self.left = window

    def open(self, size: int) -> bool:
        """Add to the window what the other end has granted; return whether that was allowed."""
        self.left += size
        return self.left <= WINDOW_MAX

    def resize(self, more: int, most: int) -> bool:
        """Change the window after the other end changed its initial window; `most` is the largest
        change on the way. Return whether it was allowed."""
        is_allowed = self.left + most <= WINDOW_MAX
        self.left += more
        return is_allowed
