"""Answers to requests that were served together (broker/fast/fast_path) and wait together for the
disk or replicas.

They are kept as encoded frames that report success. Any other outcome is rare: only then are the
frames decoded, changed and encoded again, one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from escrowmq.base.answer import Answer, Refusal, SendAnswer
from escrowmq.base.codes import Response
from escrowmq.base.command import Command
from escrowmq.base.own_properties import OUTCOME
from escrowmq.broker.answers.answer_frames import AnswerFrames
from escrowmq.broker.answers.request_times import RequestLatency
from escrowmq.broker.answers.waiting_answers import WaitingAnswers
from escrowmq.broker.input_time import InputTime
from escrowmq.broker.output import Output
from escrowmq.broker.peer import Peer
from escrowmq.codec.frame import FrameReader
from escrowmq.store.log_ends import LogEnds


class BatchedReplies:
    """Holds encoded replies until their records may be acknowledged, or their timeout has
    passed."""

    def __init__(
        self,
        *,
        frames: AnswerFrames,
        output: Output,
        latency: RequestLatency,
        moment: InputTime,
        waiting: WaitingAnswers,
        ends: LogEnds,
    ) -> None:
        self._frames = frames
        self._output = output
        self._latency = latency
        self._moment = moment
        self._waiting = waiting
        self._ends = ends

    def hold(
        self,
        peer: Peer,
        replies: list[bytes],
        counts: Mapping[int, int],
        *,
        now_ms: int,
        log_end: int,
    ) -> None:
        """Hold the encoded replies to one peer. `counts`: how many requests of each code; `now_ms`:
        when they arrived."""
        fields = self._frames.reply_fields, self._ends.safety
        run = _HeldReplies(self, peer.id, now_ms, log_end, replies, counts, fields)
        self._waiting.hold(run)

    def send(self, run: _HeldReplies, code: int) -> None:
        """Send all replies of a run with this code: as encoded if it is success."""
        fields, known = run.fields
        is_so = fields is self._frames.reply_fields and known is self._ends.safety
        if code == Response.SUCCESS and is_so:
            self._output.send(run.peer, *run.replies)
        else:
            safety = self._ends.safety if code == Response.SUCCESS else {}
            for reply in _decode_replies(run):
                answer = _answer_in_reply(reply, code, safety)
                self._output.send(run.peer, *self._frames.frames_of(reply, answer))
        self._record_latency(run, code)

    def refuse(self, run: _HeldReplies, refusal: Refusal) -> None:
        """Send this refusal to each request of a run."""
        for reply in _decode_replies(run):
            self._output.send(run.peer, *self._frames.frames_of(reply, refusal))
        self._record_latency(run, refusal.code)

    def _record_latency(self, run: _HeldReplies, code: int) -> None:
        took_ms = self._moment.now_ms - run.since_ms
        for request, count in run.counts.items():
            self._latency.record_many(request, code, took_ms, count)


class _HeldReplies(msgspec.Struct):
    """Held replies to one connection's requests of one input
    (broker/answers/waiting_answers.AnswersAtOffset)."""

    answers: BatchedReplies
    peer: int
    since_ms: int
    log_end: int
    replies: list[bytes]
    counts: Mapping[int, int]
    fields: tuple[dict[str, str], dict[str, str]]
    """The common reply fields, and the safety fields, with which the replies were encoded. If
    either has changed since, the replies must be encoded again."""

    def send(self) -> None:
        """Send the replies as encoded: their records may be acknowledged."""
        self.answers.send(self, Response.SUCCESS)

    def send_timed_out(self, code: int) -> None:
        """Send the replies after the timeout. The code says whether the disk or the replicas were
        awaited."""
        self.answers.send(self, code)

    def refuse(self, refusal: Refusal) -> None:
        """Refuse the requests, because their records may be lost."""
        self.answers.refuse(self, refusal)


def _decode_replies(run: _HeldReplies) -> Iterator[Command]:
    """Decode the held replies, each with its request's number and encoding."""
    return iter(FrameReader().read_commands(b"".join(run.replies)))


def _answer_in_reply(reply: Command, code: int, safety: dict[str, str]) -> Answer:
    ext = reply.ext
    assert ext, "they all have fields"
    if OUTCOME in ext:
        return Answer(code, ext={OUTCOME: ext[OUTCOME], **safety})
    return SendAnswer(
        code=code,
        message_id=ext["msgId"],
        queue_id=int(ext["queueId"]),
        queue_offset=int(ext["queueOffset"]),
        transaction_id=ext.get("transactionId", ""),
        ext={"escrowId": ext["escrowId"]} if "escrowId" in ext else {},
    )
