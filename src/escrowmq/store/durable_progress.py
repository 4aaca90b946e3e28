"""Progress that is saved no earlier than the log that it rests on is durable."""

from __future__ import annotations

from typing import Final, Generic, NamedTuple, TypeVar

MARKS_MAX: Final = 64

T = TypeVar("T")


class Mark(NamedTuple, Generic[T]):
    """Progress at a moment."""

    log_end: int
    """The deliveries before this place are in the state, and to be durable before it is saved."""

    scan_from: int
    """From this place on the log may hold deliveries that are not in the state."""

    state: T


class Marks(Generic[T]):
    """Progress that waits for its deliveries to be durable."""

    def __init__(self) -> None:
        self._marks: list[Mark[T]] = []

    def note(self, mark: Mark[T]) -> None:
        """The progress now. Of many that wait, every second is forgotten."""
        if self._marks and self._marks[-1].log_end == mark.log_end:
            self._marks.pop()
        self._marks.append(mark)
        if len(self._marks) > MARKS_MAX:
            del self._marks[-2:0:-2]

    def take(self, durable_offset: int) -> Mark[T] | None:
        """The newest progress whose deliveries are all durable; None when none became so."""
        found = None
        count = 0
        for mark in self._marks:
            if mark.log_end > durable_offset:
                break
            found = mark
            count += 1
        del self._marks[:count]
        return found
