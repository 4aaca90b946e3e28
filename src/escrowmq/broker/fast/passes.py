"""How often a way that has not paid lately is not tried."""

from __future__ import annotations

from typing import Final

_COUNT_MAX: Final = 64


class Passes:
    """Of one way: each time that it does not pay, twice as many chances as the time before pass
    untried, up to a bound; once it pays, all are taken."""

    __slots__ = ("_next", "left")

    def __init__(self) -> None:
        self.left = 0
        """So many chances pass."""
        self._next = 1

    def take(self) -> bool:
        """Whether this chance passes."""
        if not self.left:
            return False
        self.left -= 1
        return True

    def note(self, *, has_paid: bool) -> None:
        """It was tried."""
        if has_paid:
            self._next = 1
        else:
            self.left = self._next
            self._next = min(2 * self._next, _COUNT_MAX)
