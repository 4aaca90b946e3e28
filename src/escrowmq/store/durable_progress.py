"""Progress that is saved only once the part of the log it depends on is durable."""

from __future__ import annotations

from typing import Final, Generic, NamedTuple, TypeVar

MARKS_MAX: Final = 64

T = TypeVar("T")


class Mark(NamedTuple, Generic[T]):
    """Progress at one moment."""

    log_end: int
    """The deliveries before this offset are part of the state, and must be durable before it is
    saved."""

    scan_from: int
    """From this offset on the log may hold deliveries that are not part of the state."""

    state: T


class Marks(Generic[T]):
    """Progress that waits until its deliveries are durable."""

    def __init__(self) -> None:
        self._marks: list[Mark[T]] = []

    def note(self, mark: Mark[T]) -> None:
        """Note the progress of this moment. When many wait, every second one is dropped."""
        if self._marks and self._marks[-1].log_end == mark.log_end:
            self._marks.pop()
        self._marks.append(mark)
        if len(self._marks) > MARKS_MAX:
            del self._marks[-2:0:-2]

    def take(self, durable_offset: int) -> Mark[T] | None:
        """The newest progress whose deliveries are all durable; None when there is none yet."""
        found = None
        count = 0
        for mark in self._marks:
            if mark.log_end > durable_offset:
                break
            found = mark
            count += 1
        del self._marks[:count]
        return found
