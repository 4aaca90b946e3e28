"""The time of the current input, shared by all parts of the core."""

from __future__ import annotations


class InputTime:
    """When the current input arrived, and how long it waited."""

    __slots__ = ("now_ms", "waited_ms")

    def __init__(self) -> None:
        self.now_ms = 0
        self.waited_ms = 0
        """How long the input waited to be read, at least."""

    def set_time(self, now_ms: int, waited_ms: int = 0) -> None:
        """Set the time of a new input or wake-up."""
        self.now_ms, self.waited_ms = now_ms, waited_ms
