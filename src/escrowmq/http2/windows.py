"""Flow-control windows in both directions."""

from __future__ import annotations

from escrowmq.http2.frames import WINDOW_MAX


class ReceiveWindow:
    """The window of the other end: how many bytes it may still send. An update is sent when half of
    the window is used, because one per frame would cost more than the frame."""

    __slots__ = ("_given", "_taken", "_window")

    def __init__(self, window: int) -> None:
        self._window = window
        self._taken = 0

    def count_received(self, size: int) -> bool:
        """Count received bytes; return whether they were allowed."""
        self._taken += size
        return self._taken <= self._window

    def take_update(self) -> int:
        """Return the size of the window update to send now; 0 while more than half of the window is
        left."""
        taken = self._taken
        if taken < self._window >> 1:
            return 0
        self._taken = 0
        return taken


class SendWindow:
    """The window of this end: how many bytes it may still send. It is negative after the other end
    has reduced its windows."""

    __slots__ = ("left",)

    def __init__(self, window: int) -> None:
        self.left = window

    def add_granted(self, size: int) -> bool:
        """Add what the other end has granted. Return False if the window is too large then, which
        is an error."""
        self.left += size
        return self.left <= WINDOW_MAX

    def change_initial(self, more: int, most: int) -> bool:
        """Change the window by `more`, because the other end has changed its initial window. If it
        has changed it several times, `most` is the largest change on the way. Return whether that
        was allowed."""
        is_allowed = self.left + most <= WINDOW_MAX
        self.left += more
        return is_allowed
