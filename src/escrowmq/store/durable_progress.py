"""Holds progress back until the part of the log that it depends on is durable."""

from __future__ import annotations

from typing import Final, Generic, NamedTuple, TypeVar

MARKS_MAX: Final = 64

T = TypeVar("T")


class ProgressMark(NamedTuple, Generic[T]):
    """The progress of a delivery at one moment, and the log offsets that it depends on."""

    log_end: int
    """Deliveries before this log offset are included in the state, and must be durable before it is
    saved."""

    scan_from: int
    """From this log offset on, there may be deliveries that the state does not include."""

    state: T


class ProgressMarks(Generic[T]):
    """Progress at several moments, each waiting for its deliveries to become durable."""

    def __init__(self) -> None:
        self._marks: list[ProgressMark[T]] = []

    def add(self, mark: ProgressMark[T]) -> None:
        """Add the progress of this moment. If many wait, every second one is dropped."""
        if self._marks and self._marks[-1].log_end == mark.log_end:
            self._marks.pop()
        self._marks.append(mark)
        if len(self._marks) > MARKS_MAX:
            del self._marks[-2:0:-2]

    def take_durable(self, durable_offset: int) -> ProgressMark[T] | None:
        """Return the newest progress whose deliveries are all durable, and drop it and older ones;
        None when there is none."""
        found = None
        count = 0
        for mark in self._marks:
            if mark.log_end > durable_offset:
                break
            found = mark
            count += 1
        del self._marks[:count]
        return found
