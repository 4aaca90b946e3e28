"""Sends answers through the dialogue of the peer that asked, once `LogEnds` allows it."""

from __future__ import annotations

from typing import Protocol

import msgspec

from escrowmq.base.answer import Answer, Refusal
from escrowmq.base.codes import Flag
from escrowmq.broker.answers.request_times import Latency
from escrowmq.broker.answers.waiting_answers import WaitingAnswer, WaitingAnswers
from escrowmq.broker.asked import Question
from escrowmq.broker.input_time import InputTime
from escrowmq.store.log_ends import LogEnds


class Marks(Protocol):
    """Records in the log that belong to no queue."""

    def put(self) -> int:
        """Put one now; where the log ends behind it."""

    def end(self) -> int:
        """Where the log ends behind the tables that this input has changed; 0 without any."""


class Answers:
    """Delivers answers, and measures how long they took."""

    def __init__(self, ends: LogEnds, moment: InputTime, latency: Latency) -> None:
        self._ends = ends
        self._moment = moment
        self._latency = latency
        self.waiting = WaitingAnswers(ends)
        self._marks: Marks | None = None

    def wait_for(self, marks: Marks) -> None:
        """Of a group's master: keep answers until the copies have the tables that their input has
        changed."""
        self._marks = marks

    def once_confirmed(self, refusal: Refusal) -> Answer | Refusal:
        """A refusal that is final for its sender. In a group it waits until the copies have
        confirmed a record behind it: a master that was replaced, and does not know it yet, would
        deny what its successor has."""
        if self._marks is None:
            return refusal
        log_end = self._marks.put()
        return Answer(refusal.code, ext=refusal.ext, remark=refusal.remark, log_end=log_end)

    def give(
        self, asked: Question, reply: Answer | Refusal, *, since_ms: int | None = None
    ) -> None:
        """Send an answer, or keep it until its record may be acknowledged. The time limit runs from
        the question, or from a later time."""
        if self._marks is not None and isinstance(reply, Answer):
            log_end = self._marks.end()
            if log_end > reply.log_end:
                reply = msgspec.structs.replace(reply, log_end=log_end)
        if (
            isinstance(reply, Answer)
            and reply.log_end > self._ends.answerable_end
            and not asked.command.flag & Flag.ONE_WAY
        ):
            since_ms = asked.now_ms if since_ms is None else since_ms
            self.waiting.keep(WaitingAnswer(asked, reply, reply.log_end, since_ms, self.write))
        else:
            self.write(asked, reply)

    def write(self, asked: Question, reply: Answer | Refusal) -> None:
        """Send an answer now."""
        if isinstance(reply, Answer) and reply.tells_safety:
            reply = msgspec.structs.replace(reply, ext={**(reply.ext or {}), **self._ends.safety})
        asked.peer.dialogue.answer(asked.command, reply)
        row, took_ms = asked.row, self._moment.now_ms - asked.now_ms
        is_one_way = asked.command.flag & Flag.ONE_WAY
        if took_ms <= 0:
            self._latency.at_once[row.code, reply.code, is_one_way] += 1
        else:
            self._latency.note(row, reply.code, took_ms, is_one_way=is_one_way)
