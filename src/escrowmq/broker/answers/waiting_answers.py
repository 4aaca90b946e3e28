"""Holds answers until their records may be acknowledged (store/log_ends): until the disk, the
replicas, or both have them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

import msgspec

from escrowmq.base.answer import Answer, Refusal
from escrowmq.base.codes import Response
from escrowmq.broker.incoming_request import Question
from escrowmq.broker.part import Part
from escrowmq.delivery.delay_progress import NEVER_MS
from escrowmq.store.log_ends import LogEnds


class AnswersAtOffset(Protocol):
    """One or several answers that wait for the same log offset."""

    log_end: int
    since_ms: int

    def send(self) -> None:
        """Send the answers: their records may be acknowledged."""
        ...

    def send_timed_out(self, code: int) -> None:
        """Send the answers after the timeout. The code says whether the disk or the replicas were
        awaited."""
        ...

    def refuse(self, refusal: Refusal) -> None:
        """Refuse the requests: their records may be lost."""
        ...


class WaitingAnswer(msgspec.Struct):
    """A reply that is held until the log has reached `log_end`."""

    request: Question
    answer: Answer
    log_end: int
    since_ms: int
    tell: Callable[[Question, Answer | Refusal], object]

    def send(self) -> None:
        """Send the reply unchanged."""
        self.tell(self.request, self.answer)

    def send_timed_out(self, code: int) -> None:
        """Send the reply with `code`, or with the code that the reply has for a timeout."""
        if self.answer.late_code is not None:
            code = self.answer.late_code
        late = msgspec.structs.replace(
            self.answer, code=code, remark=None, log_end=0, tells_safety=False
        )
        self.tell(self.request, late)

    def refuse(self, refusal: Refusal) -> None:
        """Send this refusal in place of the reply."""
        self.tell(self.request, refusal)


class WaitingAnswers(Part):
    """Held replies in the order of their records. That is also the order of their deadlines."""

    name = "waiting answers"

    def __init__(self, ends: LogEnds) -> None:
        self._ends = ends
        self._waiting: deque[AnswersAtOffset] = deque()

    def hold(self, waiting: AnswersAtOffset) -> None:
        """Hold a reply until its records may be acknowledged, or its timeout has passed."""
        self._waiting.append(waiting)

    def send_ready(self) -> None:
        """Send the answers whose records may be acknowledged now."""
        while self._waiting and self._waiting[0].log_end <= self._ends.answerable_end:
            self._waiting.popleft().send()

    def refuse_all(self, reason: str) -> None:
        """Refuse all held replies, because the log cannot be made durable."""
        while self._waiting:
            refusal = Refusal(Response.SERVICE_NOT_AVAILABLE, f"not stored durably: {reason}")
            self._waiting.popleft().refuse(refusal)

    def wake(self, now_ms: int) -> None:
        """Send the answers whose timeout has passed."""
        while self._waiting:
            first = self._waiting[0]
            code = self._ends.timeout_code(first.log_end, now_ms - first.since_ms)
            if code is None:
                return
            self._waiting.popleft().send_timed_out(code)

    def clock_leapt(self, by_ms: int) -> None:
        """Shift all deadlines by the clock's jump, so that no reply times out early."""
        for waiting in self._waiting:
            waiting.since_ms += by_ms

    def wake_at_ms(self) -> int:
        """The time at which the first timeout passes."""
        if not self._waiting:
            return NEVER_MS
        first = self._waiting[0]
        return first.since_ms + self._ends.answer_timeout_ms(first.log_end)
