"""ENDs on the fast path: puts the messages of committed halves as records of the current run, and
does what follows once they are in the log."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import msgspec

from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.base.message import Message, SysFlag, Topic
from escrowmq.base.own_properties import OUTCOME
from escrowmq.broker.answers.request_times import Latency
from escrowmq.broker.asked import Asked, Question
from escrowmq.broker.fast.batched_replies import BatchedReplies
from escrowmq.broker.fast.short_halves import ShortHalves
from escrowmq.broker.output import Output
from escrowmq.broker.peer import Peer
from escrowmq.broker.requests.on_transactions import EndHandlers
from escrowmq.broker.requests.serving import Serving
from escrowmq.broker.sends.forbidden_to_senders import ODD_OF_HALF
from escrowmq.codec.plain_properties import Plan
from escrowmq.codec.reply_template import ReplyTemplate
from escrowmq.lane.native import Moment, Place, RequestsLane, Shape
from escrowmq.store.log_ends import LogEnds
from escrowmq.store.run import Run
from escrowmq.txn.end_claim import Ended, EndResult
from escrowmq.txn.op_records import OPS_OF_RECORD_MAX, TAGS_CODE, plain_op
from escrowmq.txn.state import State

STATES: Final = (State.ROLLED_BACK, State.COMMITTED)
NOTE: Final = struct.Struct(">???i")
"""What the native lane reports about an END: whether it commits, is one-way, is in JSON; its
opaque."""

_AT_ONCE_MAX: Final = 64
_POOR_SHARE: Final = 4
"""The native lane is worth its cost when it puts at least one in this many ENDs."""


class _Noted(msgspec.Struct):
    """ENDs that were served: their queue offsets, and the native lane's report on each."""

    queue_offsets: list[int]
    notes: bytes


class PutEnds(msgspec.Struct):
    """The position of the first request that was not put, how many ENDs were put, and whether this
    was worth its cost."""

    end: int
    ends_count: int
    has_paid: bool


class EndsToAnswer:
    """Ends that one peer requested in one run, answered together
    (broker/requests/on_transactions.EndsOfRun)."""

    def __init__(
        self,
        *,
        serving: Serving,
        output: Output,
        latency: Latency,
        run_answers: BatchedReplies,
        log_ends: LogEnds,
    ) -> None:
        self._serving = serving
        self._output = output
        self._latency = latency
        self._run_answers = run_answers
        self._log_ends = log_ends
        self._peer: Peer
        self._now_ms = 0
        self._noted: list[_Noted] = []
        self._replies: list[bytes] = []
        self.answers_count = 0

    def add(self, noted: _Noted, replies: bytes) -> None:
        """Add some to be answered."""
        self._noted.append(noted)
        self._replies.append(replies)
        self.answers_count += noted.notes[1 :: NOTE.size].count(0)

    def are_put(self, peer: Peer, now_ms: int) -> None:
        """The run is in the log."""
        self._peer, self._now_ms = peer, now_ms

    def answer(self, log_end: int) -> None:
        """Answer all of them at once. Measured: 0.6 us each, where one after the other takes 7."""
        if log_end > self._log_ends.answerable_end:
            counts = {Request.END_TRANSACTION: self.answers_count}
            keep, now_ms = self._run_answers.keep, self._now_ms
            keep(self._peer, self._replies, counts, now_ms=now_ms, log_end=log_end)
            return
        self._output.send(self._peer.id, *self._replies)
        self._latency.at_once[Request.END_TRANSACTION, 0, 0] += self.answers_count

    def one_by_one(self) -> Iterator[tuple[Question, Ended]]:
        """Each in the form of the general path."""
        row = self._serving.row(Request.END_TRANSACTION)
        for noted in self._noted:
            each = zip(noted.queue_offsets, NOTE.iter_unpack(noted.notes), strict=True)
            for queue_offset, (is_commit, is_one_way, is_json, opaque) in each:
                if not is_one_way:
                    command = Command(code=row.code, opaque=opaque, is_binary=not is_json)
                    asked = Asked(self._peer, row, command, None, self._now_ms)
                    yield asked, Ended(EndResult.DONE, STATES[is_commit], queue_offset)


class ShortEnds:
    """The ends of one run. Nothing changes before `commit`."""

    def __init__(
        self,
        *,
        run: Run,
        halves: ShortHalves,
        ends: EndHandlers,
        serving: Serving,
        output: Output,
        latency: Latency,
        run_answers: BatchedReplies,
        log_ends: LogEnds,
    ) -> None:
        self._run = run
        self._halves = halves
        self._ends, self._engine = ends, ends.engine
        self._serving = serving
        self._output = output
        self._latency = latency
        self._run_answers, self._log_ends = run_answers, log_ends
        self._safety: dict[str, str] = {}
        self._know_safety()
        self.ended: dict[int, State] = {}
        """The halves that were ended, by queue offset."""
        self._op_offset: int | None = None
        """The queue offset of the op record in the run."""
        self._to_answer = self._nobody()

    def _know_safety(self) -> None:
        self._safety = safety = self._log_ends.safety
        rolled_back, committed = (
            ReplyTemplate({OUTCOME: state.name.lower(), **safety}).pieces for state in STATES
        )
        self._rules = ODD_OF_HALF & 0xFFFFFFFF, int(SysFlag.COMMIT), rolled_back, committed

    def _nobody(self) -> EndsToAnswer:
        return EndsToAnswer(
            serving=self._serving,
            output=self._output,
            latency=self._latency,
            run_answers=self._run_answers,
            log_ends=self._log_ends,
        )

    def put(
        self,
        lane: RequestsLane,
        shapes: list[Shape],
        data: bytes,
        at: int,
        frame_size_max: int,
        *,
        plans: dict[tuple[bytes, ...], Plan | None],
        places: dict[bytes, Place],
        moment: Moment,
    ) -> PutEnds | None:
        """End transactions for as many ENDs, from a position on, as the native lane serves, up to a
        limit; None when it does not serve the first."""
        if self._safety is not self._log_ends.safety:
            self._know_safety()
        found = lane.find_ends(data, at, frame_size_max, shapes, _AT_ONCE_MAX)
        if found is None:
            return None
        queue_offsets, log_offsets = found
        count = self._engine.halves.pending.count_there(queue_offsets, log_offsets)
        if count > 1 or self.ended:
            count = self._count_fresh(queue_offsets[:count])
        if not count:
            return None
        log, starts = self._halves.bytes_of(log_offsets[:count])
        laid_out = lane.lay_out_ends(
            data, at, frame_size_max, shapes, plans, places, moment, log, starts, self._rules
        )
        if laid_out is None:
            return None
        end, records, replies, notes, units, keys = laid_out
        put_count = len(notes) // NOTE.size
        if records:
            self._run.put_laid_out(records, units, keys)
        del queue_offsets[put_count:]
        states = map(STATES.__getitem__, notes[:: NOTE.size])
        self.ended.update(zip(queue_offsets, states, strict=True))
        if replies:
            self._to_answer.add(_Noted(queue_offsets, notes), replies)
        return PutEnds(end, put_count, put_count * _POOR_SHARE >= count)

    def _count_fresh(self, queue_offsets: list[int]) -> int:
        """How many of these, from the first on, were not ended in this run already."""
        ended, seen = self.ended, set[int]()
        for nth, queue_offset in enumerate(queue_offsets):
            if queue_offset in ended or queue_offset in seen:
                return nth
            seen.add(queue_offset)
        return len(queue_offsets)

    def seal(self, now_ms: int) -> None:
        """Put the op record of all of them after them, unless it has to name others too, or they
        were answered already. Measured: a single END takes a quarter less this way than at the end
        of its input."""
        ended = self.ended
        if self._ends.has_unsealed or len(ended) > OPS_OF_RECORD_MAX:
            return
        tail = self._run.tail(Topic.OP, 0)
        if tail is None:
            return
        body, properties = plain_op(ended)
        run = self._run
        record = Message(
            topic=Topic.OP, body=body, born_ms=now_ms, born_host=run.host, store_host=run.host
        )
        if run.put(tail, record, properties, TAGS_CODE) >= 0:
            self._op_offset = tail.next_offset - 1

    def commit(self, peer: Peer, now_ms: int) -> None:
        """The run is in the log: the halves have ended."""
        self._engine.mark_plain(self.ended, now_ms, self._op_offset)
        if self._to_answer.answers_count:
            self._to_answer.are_put(peer, now_ms)
            if self._op_offset is None:
                self._ends.answer_run(self._to_answer)

    def answer_sealed(self) -> bool:
        """The replies to the other requests of the run are written: answer the ends, unless they
        are not sealed yet."""
        if self._op_offset is None:
            return False
        if self._to_answer.answers_count:
            self._to_answer.answer(self._run.end)
        return True

    def forget(self) -> None:
        """Clear the run."""
        self.ended.clear()
        self._op_offset = None
        if self._to_answer.answers_count:
            self._to_answer = self._nobody()
