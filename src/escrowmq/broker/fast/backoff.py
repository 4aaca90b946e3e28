"""How often to skip an optimisation that did not pay lately."""

from __future__ import annotations

from typing import Final

_COUNT_MAX: Final = 64


class Backoff:
    """Skips one optimisation: after each failure twice as many chances as before, up to a limit;
    after a success none."""

    __slots__ = ("_next", "left")

    def __init__(self) -> None:
        self.left = 0
        """The number of chances still to skip."""
        self._next = 1

    def take(self) -> bool:
        """Whether to skip this chance."""
        if not self.left:
            return False
        self.left -= 1
        return True

    def note(self, *, has_paid: bool) -> None:
        """Note whether an attempt paid."""
        if has_paid:
            self._next = 1
        else:
            self.left = self._next
            self._next = min(2 * self._next, _COUNT_MAX)
