"""Holds progress back until the part of the log that it depends on is durable."""

from __future__ import annotations

from typing import Final, Generic, NamedTuple, TypeVar

MARKS_MAX: Final = 64
RESAVE_SIZE: Final = 8 * 1024 * 1024
"""After this much more log, even unchanged progress is saved again, so that a start reads less."""

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


class UnsavedProgress(ProgressMarks[T]):
    """Decides which progress is saved next. Unchanged progress is saved again only after
    RESAVE_SIZE of log."""

    def __init__(self) -> None:
        super().__init__()
        self._saved: ProgressMark[T] | None = None

    def is_resave_due(self, log_end: int) -> bool:
        """Whether the progress is to be added and saved again, although it may be unchanged."""
        return log_end >= (self._saved.scan_from if self._saved else 0) + RESAVE_SIZE

    def take_unsaved(self, durable_offset: int) -> ProgressMark[T] | None:
        """Return the newest durable progress; None if there is none, or none worth saving."""
        mark, saved = self.take_durable(durable_offset), self._saved
        if mark is None:
            return None
        is_known = saved is not None and mark.state == saved.state
        if is_known and not self.is_resave_due(mark.scan_from):
            return None
        self._saved = mark
        return mark
