"""The current input, as known everywhere in the core."""

from __future__ import annotations


class InputTime:
    """When it arrived, and how late."""

    __slots__ = ("now_ms", "waited_ms")

    def __init__(self) -> None:
        self.now_ms = 0
        self.waited_ms = 0
        """The least time that it waited to be read."""

    def begin(self, now_ms: int, waited_ms: int = 0) -> None:
        """An input has arrived, or time has passed."""
        self.now_ms, self.waited_ms = now_ms, waited_ms
