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
    """One or several answers that wait for the same log offset."""

    log_end: int
    since_ms: int

    def send(self) -> None:
        """Send the answers: their records may be acknowledged."""
        ...

    def send_late(self, code: int) -> None:
        """Send the answers after the timeout; the code says what they waited for."""
        ...

    def refuse(self, refusal: Refusal) -> None:
        """Refuse the requests: their records may be lost."""
        ...


class WaitingAnswer(msgspec.Struct):
    """A reply that is held until the log has reached `log_end`."""

    asked: Question
    answer: Answer
    log_end: int
    since_ms: int
    tell: Callable[[Question, Answer | Refusal], object]

    def send(self) -> None:
        """Send the reply as it is."""
        self.tell(self.asked, self.answer)

    def send_late(self, code: int) -> None:
        """Send the reply with that code, or with its own code for this case."""
        if self.answer.late_code is not None:
            code = self.answer.late_code
        late = msgspec.structs.replace(
            self.answer, code=code, remark=None, log_end=0, tells_safety=False
        )
        self.tell(self.asked, late)

    def refuse(self, refusal: Refusal) -> None:
        """Send this reply instead."""
        self.tell(self.asked, refusal)


class WaitingAnswers(Part):
    """Held replies in the order of their records, which is also that of their times: the first is
    answered first, and late first."""

    name = "waiting answers"

    def __init__(self, ends: LogEnds) -> None:
        self._ends = ends
        self._waiting: deque[Waiting] = deque()

    def keep(self, waiting: Waiting) -> None:
        """Hold a reply until its records may be acknowledged, or the time limit is reached."""
        self._waiting.append(waiting)

    def release(self) -> None:
        """An end of the log has moved: send the answers that waited for it."""
        while self._waiting and self._waiting[0].log_end <= self._ends.answerable_end:
            self._waiting.popleft().send()

    def failed(self, reason: str) -> None:
        """The log will not become durable: refuse all held replies."""
        while self._waiting:
            refusal = Refusal(Response.SERVICE_NOT_AVAILABLE, f"not stored durably: {reason}")
            self._waiting.popleft().refuse(refusal)

    def wake(self, now_ms: int) -> None:
        """Send the answers whose timeout has passed."""
        while self._waiting:
            first = self._waiting[0]
            code = self._ends.late_code(first.log_end, now_ms - first.since_ms)
            if code is None:
                return
            self._waiting.popleft().send_late(code)

    def clock_leapt(self, by_ms: int) -> None:
        """The clock was set forward: none has waited for longer."""
        for waiting in self._waiting:
            waiting.since_ms += by_ms

    def wake_at_ms(self) -> int:
        """When the first timeout passes."""
        if not self._waiting:
            return NEVER_MS
        first = self._waiting[0]
        return first.since_ms + self._ends.late_after_ms(first.log_end)
