"""Sends answers to their requesters, each once its record may be acknowledged (`LogEnds`)."""

from __future__ import annotations

import msgspec

from escrowmq.base.answer import Answer, Refusal
from escrowmq.base.codes import Flag, Response
from escrowmq.broker.answers.not_found_marks import AnswerMarks, NotFoundMarks
from escrowmq.broker.answers.request_times import RequestLatency
from escrowmq.broker.answers.waiting_answers import WaitingAnswer, WaitingAnswers
from escrowmq.broker.incoming_request import Question
from escrowmq.broker.input_time import InputTime
from escrowmq.store.log_ends import LogEnds
from escrowmq.store.results import PutResult, PutStatus


class AnswerSender:
    """Sends answers, and measures how long they took."""

    def __init__(self, ends: LogEnds, moment: InputTime, latency: RequestLatency) -> None:
        self._ends = ends
        self._moment = moment
        self._latency = latency
        self.waiting = WaitingAnswers(ends)
        self.denial_marks = NotFoundMarks(ends)
        self._marks: AnswerMarks | None = None
        self._copied: frozenset[int] = frozenset()

    def set_marks(self, marks: AnswerMarks, copied: frozenset[int]) -> None:
        """From now on, delay each answer until the copies have the tables that its input changed.
        `copied`: the requests about what is copied. The success of an operator's request among
        them may say that there was nothing to change, so it waits for the copies as well. Only a
        group's master does this."""
        self._marks, self._copied = marks, copied
        self.denial_marks.set_marks(marks)

    def after_confirmation(self, request: Question, denial: Answer | Refusal) -> Answer | Refusal:
        """In a group, make an answer that something does not exist wait until the copies confirm a
        later record. The client takes such an answer as final, and a master that was replaced
        without knowing it would deny what its successor has. If the log accepts no record, return a
        retryable refusal."""
        if self._marks is None or request.command.flag & Flag.ONE_WAY:
            return denial
        if isinstance(denial, Refusal):
            denial = Answer(denial.code, ext=denial.ext, remark=denial.remark)
        return _wait_for_mark(self.denial_marks.mark(self._moment.now_ms), denial)

    def send(
        self, request: Question, reply: Answer | Refusal, *, since_ms: int | None = None
    ) -> None:
        """Send an answer, or hold it until its record may be acknowledged. The timeout runs from
        the request's arrival, or from `since_ms`."""
        if self._marks is not None and isinstance(reply, Answer):
            is_done = reply.code == Response.SUCCESS and request.row.is_audited
            # Even if it has changed nothing: it may repeat a change that the copies do not have, or
            # this master was replaced, and lacks what its successor has.
            mark = self._marks.change_mark(is_needed=is_done and request.row.code in self._copied)
            reply = _wait_for_mark(mark, reply)
        if (
            isinstance(reply, Answer)
            and reply.log_end > self._ends.answerable_end
            and not request.command.flag & Flag.ONE_WAY
        ):
            since_ms = request.now_ms if since_ms is None else since_ms
            self.waiting.hold(WaitingAnswer(request, reply, reply.log_end, since_ms, self.send_now))
        else:
            self.send_now(request, reply)

    def send_now(self, request: Question, reply: Answer | Refusal) -> None:
        """Send an answer now, and measure its latency."""
        if isinstance(reply, Answer) and reply.tells_safety:
            reply = msgspec.structs.replace(reply, ext={**(reply.ext or {}), **self._ends.safety})
        request.peer.dialogue.answer(request.command, reply)
        row, took_ms = request.row, self._moment.now_ms - request.now_ms
        is_one_way = request.command.flag & Flag.ONE_WAY
        if took_ms <= 0:
            self._latency.immediate_counts[row.code, reply.code, is_one_way] += 1
        else:
            self._latency.record(row, reply.code, took_ms, is_one_way=is_one_way)


def _wait_for_mark(mark: PutResult | None, answer: Answer) -> Answer | Refusal:
    """Make an answer wait for a mark too, if there is one."""
    if mark is None:
        return answer
    if mark.status is not PutStatus.OK:
        remark = f"no copy can confirm it, so ask again: {mark.reason}"
        return Refusal(Response.SERVICE_NOT_AVAILABLE, remark)
    return msgspec.structs.replace(answer, log_end=max(mark.log_end, answer.log_end))
