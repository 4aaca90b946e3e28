"""Decides how often to skip an optimisation that did not pay recently."""

from __future__ import annotations

from typing import Final

_COUNT_MAX: Final = 64


class Backoff:
    """Skips attempts at an optimisation: after each failure twice as many as before, up to a limit;
    after a success none."""

    __slots__ = ("_next", "left")

    def __init__(self) -> None:
        self.left = 0
        """The number of attempts still to skip."""
        self._next = 1

    def skips_attempt(self) -> bool:
        """Whether to skip this attempt; counts down if so."""
        if not self.left:
            return False
        self.left -= 1
        return True

    def record_attempt(self, *, has_paid: bool) -> None:
        """Record whether an attempt paid, which sets the number of attempts to skip."""
        if has_paid:
            self._next = 1
        else:
            self.left = self._next
            self._next = min(2 * self._next, _COUNT_MAX)
