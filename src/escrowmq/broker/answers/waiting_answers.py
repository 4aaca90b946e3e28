"""Answers that wait until the sender of a record may be answered (store/log_ends): for the disk,
for replicas, or for both."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

import msgspec

from escrowmq.base.answer import Answer, Refusal
from escrowmq.base.codes import Response
from escrowmq.broker.asked import Question
from escrowmq.broker.part import Part
from escrowmq.delivery.delay_progress import NEVER_MS
from escrowmq.store.log_ends import LogEnds


class Waiting(Protocol):
    """An answer, or several, that wait for the same."""

    log_end: int
    since_ms: int

    def say(self) -> None:
        """The records that it tells of may be answered."""
        ...

    def say_late(self, code: int) -> None:
        """It has waited long enough; the code says for what."""
        ...

    def refuse(self, refusal: Refusal) -> None:
        """The records that it tells of may be lost."""
        ...


class WaitingAnswer(msgspec.Struct):
    """A reply that is held until the log has come to `log_end`."""

    asked: Question
    answer: Answer
    log_end: int
    since_ms: int
    tell: Callable[[Question, Answer | Refusal], object]

    def say(self) -> None:
        """As it is."""
        self.tell(self.asked, self.answer)

    def say_late(self, code: int) -> None:
        """With that code, or with its own for this case."""
        if self.answer.late_code is not None:
            code = self.answer.late_code
        late = msgspec.structs.replace(self.answer, code=code, remark=None, log_end=0)
        self.tell(self.asked, late)

    def refuse(self, refusal: Refusal) -> None:
        """Say this instead."""
        self.tell(self.asked, refusal)


class WaitingAnswers(Part):
    """Held replies, in the order of their records, which is that of their times too: the first is
    the first to be answered, and the first to be late."""

    name = "waiting answers"

    def __init__(self, ends: LogEnds) -> None:
        self._ends = ends
        self._waiting: deque[Waiting] = deque()

    def keep(self, waiting: Waiting) -> None:
        """Say it when its records may be answered, or that this takes too long."""
        self._waiting.append(waiting)

    def release(self) -> None:
        """An end of the log has moved: give the answers that waited for it."""
        while self._waiting and self._waiting[0].log_end <= self._ends.answerable_end:
            self._waiting.popleft().say()

    def failed(self, reason: str) -> None:
        """The log will not be durable: nobody is told that it is."""
        while self._waiting:
            refusal = Refusal(Response.SERVICE_NOT_AVAILABLE, f"not stored durably: {reason}")
            self._waiting.popleft().refuse(refusal)

    def wake(self, now_ms: int) -> None:
        """Answer those who have waited long enough."""
        while self._waiting:
            first = self._waiting[0]
            code = self._ends.late_code(first.log_end, now_ms - first.since_ms)
            if code is None:
                return
            self._waiting.popleft().say_late(code)

    def wake_at_ms(self) -> int:
        """When the first of them has waited long enough."""
        if not self._waiting:
            return NEVER_MS
        first = self._waiting[0]
        return first.since_ms + self._ends.late_after_ms(first.log_end)
