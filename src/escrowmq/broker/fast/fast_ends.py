"""ENDs on the fast path: puts the messages of committed halves as records of the current run, and
updates the transactions once the run is in the log."""

from __future__ import annotations

from typing import Final

import msgspec

from escrowmq.base.message import Message, SysFlag, Topic
from escrowmq.base.own_properties import OUTCOME
from escrowmq.broker.fast.end_replies import NOTE, STATES, EndReplies, EndsToAnswer, ServedEnds
from escrowmq.broker.fast.half_reader import read_halves
from escrowmq.broker.peer import Peer
from escrowmq.broker.sends.forbidden_to_senders import ODD_OF_HALF
from escrowmq.codec.plain_properties import PropertiesPlan
from escrowmq.codec.reply_template import ReplyTemplate
from escrowmq.lane.native import LaneLimits, LaneQueue, LaneShape, RequestsLane
from escrowmq.store.commit_log import CommitLog
from escrowmq.store.log_ends import LogEnds
from escrowmq.store.record_run import RecordRun
from escrowmq.txn.engine import TransactionEngine
from escrowmq.txn.op_records import OPS_OF_RECORD_MAX, TAGS_CODE, encode_plain_op
from escrowmq.txn.state import State

_AT_ONCE_MAX: Final = 64
_POOR_SHARE: Final = 4
"""The native lane pays if it puts at least one in this many ENDs that it was given."""


class EndsPut(msgspec.Struct):
    """The result of putting ENDs: the position of the first that was not put, their number, and
    whether using the native lane has paid."""

    end: int
    ends_count: int
    has_paid: bool


class FastEnds:
    """The ENDs of one run. No state changes before `commit`."""

    def __init__(
        self,
        *,
        run: RecordRun,
        log: CommitLog,
        engine: TransactionEngine,
        replies: EndReplies,
        log_ends: LogEnds,
    ) -> None:
        self._run = run
        self._log = log
        self._engine = engine
        self._replies = replies
        self._log_ends = log_ends
        self._safety: dict[str, str] = {}
        self._encode_replies()
        self.ended: dict[int, State] = {}
        """The outcomes of the ended halves, by queue offset."""
        self._op_offset: int | None = None
        """The queue offset of the run's op record; None if it has none."""
        self._to_answer: EndsToAnswer | None = None
        """The ENDs of the run that need an answer."""

    def _encode_replies(self) -> None:
        self._safety = safety = self._log_ends.safety
        rolled_back, committed = (
            ReplyTemplate({OUTCOME: state.name.lower(), **safety}).pieces for state in STATES
        )
        self._rules = ODD_OF_HALF & 0xFFFFFFFF, int(SysFlag.COMMIT), rolled_back, committed

    def put(
        self,
        lane: RequestsLane,
        shapes: list[LaneShape],
        data: bytes,
        at: int,
        frame_size_max: int,
        *,
        plans: dict[tuple[bytes, ...], PropertiesPlan | None],
        places: dict[bytes, LaneQueue],
        moment: LaneLimits,
        peer: Peer,
        now_ms: int,
    ) -> EndsPut | None:
        """End transactions for as many of the ENDs from a position on as the native lane serves, up
        to a limit. Return None if it does not serve the first."""
        if self._safety is not self._log_ends.safety:
            self._encode_replies()
        found = lane.find_ends(data, at, frame_size_max, shapes, _AT_ONCE_MAX)
        if found is None:
            return None
        queue_offsets, log_offsets = found
        count = self._engine.halves.pending.count_there(queue_offsets, log_offsets)
        if count > 1 or self.ended:
            count = self._count_not_ended(queue_offsets[:count])
        if not count:
            return None
        log, starts = read_halves(self._log, log_offsets[:count])
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
            if self._to_answer is None:
                self._to_answer = EndsToAnswer(self._replies, peer, now_ms)
            self._to_answer.add(ServedEnds(queue_offsets, notes), replies)
        return EndsPut(end, put_count, put_count * _POOR_SHARE >= count)

    def _count_not_ended(self, queue_offsets: list[int]) -> int:
        """Return how many of these halves, from the first on, were not yet ended in this run."""
        ended, seen = self.ended, set[int]()
        for nth, queue_offset in enumerate(queue_offsets):
            if queue_offset in ended or queue_offset in seen:
                return nth
            seen.add(queue_offset)
        return len(queue_offsets)

    def put_op_record(self, now_ms: int) -> None:
        """Put the op record of the run's ENDs, unless earlier ENDs of the input wait for an op
        record too, or there are too many for one record. Measured: a single END takes a quarter
        less time than with an op record at the end of its input."""
        ended = self.ended
        if self._engine.unsealed.has_any or len(ended) > OPS_OF_RECORD_MAX:
            return
        tail = self._run.tail(Topic.OP, 0)
        if tail is None:
            return
        body, properties = encode_plain_op(ended)
        run = self._run
        record = Message(
            topic=Topic.OP, body=body, born_ms=now_ms, born_host=run.host, store_host=run.host
        )
        if run.put(tail, record, properties, TAGS_CODE) >= 0:
            self._op_offset = tail.next_offset - 1

    def mark_halves_ended(self, now_ms: int) -> None:
        """Mark the halves as ended, now that the run is in the log."""
        self._engine.mark_plain_ended(self.ended, now_ms, self._op_offset)
        if self._to_answer is not None and self._op_offset is None:
            self._engine.unsealed.answers.append(self._to_answer)

    def answer_sealed(self) -> bool:
        """Answer the ENDs if the run has their op record; return whether it has."""
        if self._op_offset is None:
            return False
        if self._to_answer is not None:
            self._replies.send(self._to_answer, self._run.end)
        return True

    def clear(self) -> None:
        """Clear the run's data."""
        self.ended.clear()
        self._op_offset = None
        self._to_answer = None
