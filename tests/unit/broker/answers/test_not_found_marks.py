"""Marks for answers about missing things: bounded, and always after what was found."""

from __future__ import annotations

from escrowmq.base.store_settings import StoreSettings
from escrowmq.broker.answers.not_found_marks import NotFoundMarks
from escrowmq.delivery.delay_progress import NEVER_MS
from escrowmq.store.log_ends import LogEnds
from escrowmq.store.results import PutResult, PutStatus


class Log:
    """A log of marks of one byte each; each call is an input of its own."""

    end_offset = 0

    def denial_mark(self) -> PutResult:
        self.end_offset += 1
        return PutResult(PutStatus.OK, log_end=self.end_offset)

    def change_mark(self, *, is_needed: bool = False) -> PutResult | None:
        return None


def made() -> tuple[NotFoundMarks, Log]:
    log = Log()
    marks = NotFoundMarks(LogEnds(log, StoreSettings()))  # type: ignore[arg-type]
    marks.set_marks(log)
    return marks, log


def test_many_marks_are_appended_at_once_and_then_a_few_per_second() -> None:
    marks, log = made()
    for number in range(1, 1_001):
        assert marks.mark(5_000).log_end == number
    assert marks.wake_at_ms() == NEVER_MS
    waits = [marks.mark(5_000).log_end for _ in range(10)]
    assert (log.end_offset, waits) == (1_000, [1_001] * 10)
    assert marks.wake_at_ms() == 5_050
    marks.wake(5_049)
    assert log.end_offset == 1_000
    marks.wake(5_050)
    assert (log.end_offset, marks.wake_at_ms()) == (1_001, NEVER_MS)
    assert marks.mark(5_051).log_end == 1_002
    assert marks.wake_at_ms() == 5_100
    marks.clock_leapt(3_600_000)
    assert marks.wake_at_ms() == 3_605_100


def test_another_record_serves_as_the_mark() -> None:
    marks, log = made()
    for _ in range(1_001):
        marks.mark(5_000)
    log.end_offset += 1
    marks.wake(6_000)
    assert (log.end_offset, marks.wake_at_ms()) == (1_001, NEVER_MS)
