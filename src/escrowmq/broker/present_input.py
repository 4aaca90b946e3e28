"""The present input, as everybody in the core may know of it."""

from __future__ import annotations


class Moment:
    """When it came, and how late."""

    __slots__ = ("now_ms", "waited_ms")

    def __init__(self) -> None:
        self.now_ms = 0
        self.waited_ms = 0
        """For so long it waited to be read, at least."""

    def begin(self, now_ms: int, waited_ms: int = 0) -> None:
        """An input has come, or time has passed."""
        self.now_ms, self.waited_ms = now_ms, waited_ms
