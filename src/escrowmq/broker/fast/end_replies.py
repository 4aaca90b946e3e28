"""Answers to the ENDs of one run on the fast path: all in one write, or one by one if any of them
was undone."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import msgspec

from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.broker.answers.request_times import RequestLatency
from escrowmq.broker.fast.batched_replies import BatchedReplies
from escrowmq.broker.incoming_request import IncomingRequest, Question
from escrowmq.broker.output import Output
from escrowmq.broker.peer import Peer
from escrowmq.broker.requests.on_transactions import EndHandlers
from escrowmq.broker.requests.request_server import RequestServer
from escrowmq.store.log_ends import LogEnds
from escrowmq.txn.end_claim import EndReply, EndResult
from escrowmq.txn.state import State
from escrowmq.txn.unsealed_ends import SealResult

STATES: Final = (State.ROLLED_BACK, State.COMMITTED)
NOTE: Final = struct.Struct(">???i")
"""The native lane's report on an END: whether it commits, is one-way, is in JSON; and its
opaque."""


class ServedEnds(msgspec.Struct):
    """ENDs that were served: the queue offsets of their halves, and the native lane's reports
    (`NOTE`)."""

    queue_offsets: list[int]
    notes: bytes


class EndsToAnswer:
    """The ENDs of one peer in one run that still need their answers
    (txn.unsealed_ends.EndAnswer)."""

    def __init__(self, replies: EndReplies, peer: Peer, now_ms: int) -> None:
        self._replies = replies
        self.peer, self.now_ms = peer, now_ms
        self.noted: list[ServedEnds] = []
        self.frames: list[bytes] = []
        self.count = 0
        """The number of ENDs that are not one-way."""

    def add(self, noted: ServedEnds, replies: bytes) -> None:
        """Add served ENDs with their encoded replies."""
        self.noted.append(noted)
        self.frames.append(replies)
        self.count += noted.notes[1 :: NOTE.size].count(0)

    def send_answer(self, sealed: SealResult) -> None:
        """Answer all ENDs, each with its outcome, now that the op record is appended."""
        if sealed.undone:
            self._replies.send_each(self, sealed)
        else:
            self._replies.send(self, sealed.log_end)


class EndReplies:
    """Sends the answers to the ENDs of a run."""

    def __init__(
        self,
        *,
        ends: EndHandlers,
        serving: RequestServer,
        output: Output,
        latency: RequestLatency,
        run_answers: BatchedReplies,
        log_ends: LogEnds,
    ) -> None:
        self._ends = ends
        self._serving = serving
        self._output = output
        self._latency = latency
        self._run_answers = run_answers
        self._log_ends = log_ends

    def send(self, run: EndsToAnswer, log_end: int) -> None:
        """Send all encoded replies in one write. Measured: 0.6 us each, compared with 7 one by
        one."""
        if log_end > self._log_ends.answerable_end:
            counts = {Request.END_TRANSACTION: run.count}
            keep = self._run_answers.hold
            keep(run.peer, run.frames, counts, now_ms=run.now_ms, log_end=log_end)
            return
        self._output.send(run.peer.id, *run.frames)
        self._latency.immediate_counts[Request.END_TRANSACTION, 0, 0] += run.count

    def send_each(self, run: EndsToAnswer, sealed: SealResult) -> None:
        """Answer each END separately, with its own outcome."""
        for asked, ended in self._requests_with_outcomes(run):
            self._ends.send_end_answer(asked, ended, sealed)

    def _requests_with_outcomes(self, run: EndsToAnswer) -> Iterator[tuple[Question, EndReply]]:
        """Yield each END that is not one-way as a request, as on the general path, with its
        outcome."""
        row = self._serving.row(Request.END_TRANSACTION)
        for noted in run.noted:
            each = zip(noted.queue_offsets, NOTE.iter_unpack(noted.notes), strict=True)
            for queue_offset, (is_commit, is_one_way, is_json, opaque) in each:
                if not is_one_way:
                    command = Command(code=row.code, opaque=opaque, is_binary=not is_json)
                    asked = IncomingRequest(run.peer, row, command, None, run.now_ms)
                    yield asked, EndReply(EndResult.DONE, STATES[is_commit], queue_offset)
