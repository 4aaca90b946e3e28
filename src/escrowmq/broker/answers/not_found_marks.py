"""Lets answers that say that something does not exist wait for a mark in the log of a group.

Clients may ask for missing things as often as they like. So after a number of marks there are only
a few more per second, and the answers in between share them: an answer may wait for any record
that is appended after it was found."""

from __future__ import annotations

from typing import Final, Protocol

from escrowmq.broker.part import Part
from escrowmq.delivery.delay_progress import NEVER_MS
from escrowmq.store.log_ends import LogEnds
from escrowmq.store.results import PutResult, PutStatus

_AT_ONCE_MAX: Final = 1_000
"""Marks that are appended without a pause between them."""

_PAUSE_MS: Final = 50
"""The pause between marks after that: 2 KB of log per second."""


class AnswerMarks(Protocol):
    """Appends marker records that belong to no queue, so that answers can wait for them to be
    confirmed."""

    def denial_mark(self) -> PutResult:
        """Append a mark, once per input, for answers that say something does not exist."""
        ...

    def change_mark(self, *, is_needed: bool = False) -> PutResult | None:
        """Append a mark after the tables that this input has changed; None if it changed none,
        unless a mark is needed in any case."""
        ...


class NotFoundMarks(Part):
    """Appends the marks that answers about missing things wait for, at a bounded rate."""

    name = "denial marks"

    def __init__(self, ends: LogEnds) -> None:
        self._ends = ends
        self._marks: AnswerMarks | None = None
        self._end = -1
        self._full_ms = 0
        """When `_AT_ONCE_MAX` marks may be appended again at once."""
        self._awaited_end = -1
        """The log's end when an answer began to wait for a later record; -1 if none waits."""

    def set_marks(self, marks: AnswerMarks) -> None:
        """Set the object that appends marks."""
        self._marks = marks

    def mark(self, now_ms: int) -> PutResult:
        """Append a mark, or return the place of the next record, which follows soon."""
        if now_ms < self._next_ms():
            self._awaited_end = self._ends.written_end
            return PutResult(PutStatus.OK, log_end=self._awaited_end + 1)
        return self._append(now_ms)

    def _next_ms(self) -> int:
        """The time from which on a mark may be appended."""
        return self._full_ms - (_AT_ONCE_MAX - 1) * _PAUSE_MS

    def _append(self, now_ms: int) -> PutResult:
        assert self._marks is not None, "there are marks in groups only"
        put = self._marks.denial_mark()
        if put.log_end != self._end:  # not the one that another answer of this input waits for
            self._end = put.log_end
            self._full_ms = max(self._full_ms, now_ms) + _PAUSE_MS
        return put

    def wake(self, now_ms: int) -> None:
        """Append the mark that answers wait for, unless another record was appended since."""
        if now_ms >= self.wake_at_ms():
            if self._ends.written_end == self._awaited_end:
                self._append(now_ms)
            self._awaited_end = -1

    def wake_at_ms(self) -> int:
        """The time at which the next mark may be appended, if an answer waits for it."""
        return NEVER_MS if self._awaited_end < 0 else self._next_ms()

    def clock_leapt(self, by_ms: int) -> None:
        """Shift the time from which on marks may be appended."""
        self._full_ms += by_ms
