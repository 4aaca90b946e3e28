"""Answers that may leave once the log is durable up to an offset."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from escrowmq.base.answer import Answer, Refusal
from escrowmq.base.codes import Response
from escrowmq.broker.asked import Question
from escrowmq.broker.part import Part
from escrowmq.delivery.progress import NEVER_MS


class _Waiting(msgspec.Struct):
    asked: Question
    answer: Answer
    deadline_ms: int


class WaitingAnswers(Part):
    """In the order of what they wait for."""

    name = "waiting answers"

    def __init__(self, say: Callable[[Question, Answer | Refusal], object]) -> None:
        self._say = say
        self._waiting: deque[_Waiting] = deque()

    def keep(self, asked: Question, answer: Answer, *, until_ms: int) -> None:
        """Say it when what it tells of is durable, and something less from then on."""
        self._waiting.append(_Waiting(asked, answer, until_ms))

    def synced(self, durable_offset: int) -> None:
        """The log is durable up to an offset."""
        while self._waiting and self._waiting[0].answer.log_end <= durable_offset:
            waiting = self._waiting.popleft()
            self._say(waiting.asked, waiting.answer)

    def failed(self, reason: str) -> None:
        """The log will not be durable: nobody is told that it is."""
        while self._waiting:
            refusal = Refusal(Response.SERVICE_NOT_AVAILABLE, f"not stored durably: {reason}")
            self._say(self._waiting.popleft().asked, refusal)

    def wake(self, now_ms: int) -> None:
        """Tell those whose messages are not durable in time."""
        while self._waiting and self._waiting[0].deadline_ms <= now_ms:
            waiting = self._waiting.popleft()
            answer = waiting.answer
            late = msgspec.structs.replace(answer, code=answer.late_code, remark=None, log_end=0)
            self._say(waiting.asked, late)

    def wake_at_ms(self) -> int:
        """When the first of them has waited long enough."""
        return self._waiting[0].deadline_ms if self._waiting else NEVER_MS
