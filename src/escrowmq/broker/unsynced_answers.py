"""Answers that may leave once the log is durable up to an offset."""

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


class Waiting(Protocol):
    """An answer, or several, that wait for the same."""

    log_end: int
    deadline_ms: int

    def say(self) -> None:
        """What it tells of is durable."""
        ...

    def say_late(self) -> None:
        """It has waited long enough."""
        ...

    def refuse(self, refusal: Refusal) -> None:
        """What it tells of will not be durable."""
        ...


class WaitingAnswer(msgspec.Struct):
    """One of them."""

    asked: Question
    answer: Answer
    log_end: int
    deadline_ms: int
    tell: Callable[[Question, Answer | Refusal], object]

    def say(self) -> None:
        """As it is."""
        self.tell(self.asked, self.answer)

    def say_late(self) -> None:
        """With the code for that."""
        answer = self.answer
        late = msgspec.structs.replace(answer, code=answer.late_code, remark=None, log_end=0)
        self.tell(self.asked, late)

    def refuse(self, refusal: Refusal) -> None:
        """Say this instead."""
        self.tell(self.asked, refusal)


class WaitingAnswers(Part):
    """In the order of what they wait for."""

    name = "waiting answers"

    def __init__(self) -> None:
        self._waiting: deque[Waiting] = deque()

    def keep(self, waiting: Waiting) -> None:
        """Say it when what it tells of is durable, and something less from its deadline on."""
        # Only a span that was made shorter meanwhile comes to this; it is for those in front too,
        # whose messages are durable no later.
        for before in reversed(self._waiting):
            if before.deadline_ms <= waiting.deadline_ms:
                break
            before.deadline_ms = waiting.deadline_ms
        self._waiting.append(waiting)

    def synced(self, durable_offset: int) -> None:
        """The log is durable up to an offset."""
        while self._waiting and self._waiting[0].log_end <= durable_offset:
            self._waiting.popleft().say()

    def failed(self, reason: str) -> None:
        """The log will not be durable: nobody is told that it is."""
        while self._waiting:
            refusal = Refusal(Response.SERVICE_NOT_AVAILABLE, f"not stored durably: {reason}")
            self._waiting.popleft().refuse(refusal)

    def wake(self, now_ms: int) -> None:
        """Tell those whose messages are not durable in time."""
        # The first is also the first to be late: all wait for the same span (see `keep`), from when
        # they are kept. Whoever was asked long before says so (`since_ms` of `Answers.give`).
        while self._waiting and self._waiting[0].deadline_ms <= now_ms:
            self._waiting.popleft().say_late()

    def wake_at_ms(self) -> int:
        """When the first of them has waited long enough."""
        return self._waiting[0].deadline_ms if self._waiting else NEVER_MS
