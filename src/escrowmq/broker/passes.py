"""How often a way that has not paid lately is not tried."""

from __future__ import annotations

from typing import Final

_COUNT_MAX: Final = 64


class Passes:
    """Of one way: each time that it does not pay, twice as many chances as the time before pass
    untried, up to a bound; once it pays, all are taken."""

    __slots__ = ("_left", "_next")

    def __init__(self) -> None:
        self._left = 0
        self._next = 1

    def take(self) -> bool:
        """Whether this chance passes."""
        if not self._left:
            return False
        self._left -= 1
        return True

    def note(self, *, has_paid: bool) -> None:
        """It was tried."""
        if has_paid:
            self._next = 1
        else:
            self._left = self._next
            self._next = min(2 * self._next, _COUNT_MAX)
