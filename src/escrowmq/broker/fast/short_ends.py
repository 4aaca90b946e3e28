"""ENDs on the fast path: puts the messages of committed halves as records of the current run, and
does what follows once they are in the log."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.base.message import SysFlag, Topic
from escrowmq.broker.answers.request_times import Latency
from escrowmq.broker.asked import Asked, Question
from escrowmq.broker.fast.backoff import Backoff
from escrowmq.broker.fast.batched_replies import BatchedReplies
from escrowmq.broker.fast.short_halves import ShortHalves
from escrowmq.broker.output import Output
from escrowmq.broker.peer import Peer
from escrowmq.broker.requests.on_transactions import EndHandlers, told
from escrowmq.broker.requests.serving import Serving
from escrowmq.broker.sends.forbidden_to_senders import ODD_OF_HALF
from escrowmq.codec.ended_template import EndedTemplate
from escrowmq.codec.request_shapes import PLAIN_KEYS_MAX, Plan
from escrowmq.delivery.topics import TopicTable
from escrowmq.lane.native import EndShape, EndsLane, Moment, Place
from escrowmq.store.log_ends import LogEnds
from escrowmq.store.run import Run, Tail
from escrowmq.txn.end_claim import Ended, EndResult
from escrowmq.txn.op_records import OPS_OF_RECORD_MAX, TAGS_CODE, plain_op
from escrowmq.txn.plain_halves import PlainHalf
from escrowmq.txn.state import State

STATES: Final = (State.ROLLED_BACK, State.COMMITTED)
NOTE: Final = struct.Struct(">??4s")
"""What the native lane reports about an END: whether it commits, whether it is one-way, its
number."""

_AT_ONCE_MAX: Final = 64
_POOR_SHARE: Final = 4
"""The native lane is worth its cost when it puts at least one in this many ENDs."""

Number = bytes | int
"""The number of a request as it was written: four bytes of a binary header, or the text in JSON."""


class _Noted(msgspec.Struct):
    """ENDs that the native lane has served: their queue offsets, and its report on each."""

    queue_offsets: list[int]
    notes: bytes


class PutEnds(msgspec.Struct):
    """The position of the first request that was not put, and how many ENDs were put."""

    end: int
    ends_count: int


class EndsToTell:
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
        templates: Mapping[State, EndedTemplate],
    ) -> None:
        self._serving = serving
        self._output = output
        self._latency = latency
        self._run_answers = run_answers
        self._log_ends = log_ends
        self._templates = templates
        self._peer: Peer
        self._now_ms = 0
        self._wanted: list[tuple[int, State, Number] | _Noted] = []
        self._replies: list[bytes] = []
        self.told_count = 0

    def add(self, queue_offset: int, state: State, number: Number) -> None:
        """Add one to be answered."""
        self._wanted.append((queue_offset, state, number))
        reply = self._templates[state]
        self._replies.append(
            reply.binary(number) if isinstance(number, bytes) else reply.json(number)
        )
        self.told_count += 1

    def add_noted(self, noted: _Noted, replies: bytes) -> None:
        """Add some that the native lane has served."""
        self._wanted.append(noted)
        self._replies.append(replies)
        self.told_count += noted.notes[1 :: NOTE.size].count(0)

    def are_put(self, peer: Peer, now_ms: int) -> None:
        """The run is in the log."""
        self._peer, self._now_ms = peer, now_ms

    def say(self, log_end: int) -> None:
        """Answer all of them at once. Measured: 0.6 us each, where one after the other takes 7."""
        if log_end > self._log_ends.answerable_end:
            counts = {Request.END_TRANSACTION: self.told_count}
            keep, now_ms = self._run_answers.keep, self._now_ms
            keep(self._peer, self._replies, counts, now_ms=now_ms, log_end=log_end)
            return
        self._output.send(self._peer.id, *self._replies)
        self._latency.at_once[Request.END_TRANSACTION, 0, 0] += self.told_count

    def one_by_one(self) -> Iterator[tuple[Question, Ended]]:
        """Each in the form of the general path."""
        row = self._serving.row(Request.END_TRANSACTION)
        for queue_offset, state, number in self._each():
            command = Command(code=row.code, opaque=0)
            if isinstance(number, bytes):
                command.opaque = int.from_bytes(number, "big", signed=True)
                command.is_binary = True
            else:
                command.opaque = number
            asked = Asked(self._peer, row, command, None, self._now_ms)
            yield asked, Ended(EndResult.DONE, state, queue_offset)

    def _each(self) -> Iterator[tuple[int, State, Number]]:
        for one in self._wanted:
            if not isinstance(one, _Noted):
                yield one
                continue
            notes = NOTE.iter_unpack(one.notes)
            for queue_offset, (is_commit, is_one_way, number) in zip(
                one.queue_offsets, notes, strict=True
            ):
                if not is_one_way:
                    yield queue_offset, STATES[is_commit], number


class ShortEnds:
    """The ends of one run. Nothing changes before `commit`."""

    def __init__(
        self,
        *,
        run: Run,
        topics: TopicTable,
        halves: ShortHalves,
        ends: EndHandlers,
        serving: Serving,
        output: Output,
        latency: Latency,
        run_answers: BatchedReplies,
        log_ends: LogEnds,
        tail_of: Callable[[str, int], Tail | None],
    ) -> None:
        self._run = run
        self._topics = topics
        self._halves = halves
        self._ends, self._engine = ends, ends.engine
        self._serving = serving
        self._output = output
        self._latency = latency
        self._run_answers, self._log_ends = run_answers, log_ends
        self._templates = {
            state: EndedTemplate(told(state, level=log_ends.level)) for state in STATES
        }
        self._rules = ODD_OF_HALF & 0xFFFFFFFF, int(SysFlag.COMMIT), *self._pieces()
        self._tail_of = tail_of
        """Where the messages for a queue go; None when the general path must decide."""
        self.ended: dict[int, State] = {}
        """The halves that were ended, by queue offset."""
        self._op_offset: int | None = None
        """The queue offset of the op record in the run."""
        self._to_tell = self._nobody()
        self._backoff = Backoff()
        """How often to skip the native lane, where few halves are plain."""

    def _nobody(self) -> EndsToTell:
        return EndsToTell(
            serving=self._serving,
            output=self._output,
            latency=self._latency,
            run_answers=self._run_answers,
            log_ends=self._log_ends,
            templates=self._templates,
        )

    def _pieces(self) -> tuple[bytes, bytes, bytes, bytes]:
        """The constant parts of replies, in the native lane's form."""
        dropped, kept = self._templates[State.ROLLED_BACK], self._templates[State.COMMITTED]
        return dropped.front, dropped.back, kept.front, kept.back

    def end(
        self,
        group: str,
        key: bytes,
        *,
        queue_offset: int,
        log_offset: int,
        state: State,
        number: Number | None,
        suffix: bytes,
    ) -> bool:
        """End a transaction on the fast path: put the message of its half, if it is committed.
        False, with nothing done, when the half is not plain, or not this producer's. `number` is
        None for a one-way request; `suffix` is what the broker adds to messages."""
        halves = self._engine.halves
        if halves.pending.log_offset(queue_offset) != log_offset or queue_offset in self.ended:
            return False
        half = halves.recent.plain(queue_offset=queue_offset, log_offset=log_offset)
        if half is None:
            half = self._halves.read(
                queue_offset=queue_offset, log_offset=log_offset, suffix=suffix
            )
        if (
            half is None
            or half.group != group
            or half.key != key
            or len(half.keys) > PLAIN_KEYS_MAX
            or self._topics.queue_read(half.topic, half.queue_id) != half.queue_id
        ):
            return False
        if state == State.COMMITTED and not self._put_final(half):
            return False
        self.ended[queue_offset] = state
        if number is not None:
            self._to_tell.add(queue_offset, state, number)
        return True

    def _put_final(self, half: PlainHalf) -> bool:
        """Put the message of a half that is committed."""
        tail = self._tail_of(half.topic, half.queue_id)
        if tail is None:
            return False
        at = self._run.put(
            tail, half.body, half.properties, half.tags_code, half.flag,
            half.sys_flag | SysFlag.COMMIT, half.born_ms, half.born_host, half.reconsume_times,
            half.log_offset,
        )  # fmt: skip
        if at < 0:
            return False
        self._run.index(tail, half.key, half.keys, at)
        return True

    def end_by_lane(
        self,
        lane: EndsLane,
        shapes: list[EndShape],
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
        if self._backoff.left and self._backoff.take():
            return None
        found = lane.find(data, at, frame_size_max, shapes, _AT_ONCE_MAX)
        if found is None:
            return None
        queue_offsets, log_offsets = found
        count = self._engine.halves.pending.count_there(queue_offsets, log_offsets)
        if count > 1 or self.ended:
            count = self._count_fresh(queue_offsets[:count])
        if not count:
            return None
        log, starts = self._halves.bytes_of(log_offsets[:count])
        laid_out = lane.lay_out(
            data, at, frame_size_max, shapes, plans, places, moment, log, starts, self._rules
        )
        notes = b"" if laid_out is None else laid_out[3]
        put_count = len(notes) // NOTE.size
        self._backoff.note(has_paid=put_count * _POOR_SHARE >= count)
        if laid_out is None:
            return None
        end, records, replies, _, units, keys = laid_out
        if records:
            self._run.put_laid_out(records, units, keys)
        del queue_offsets[put_count:]
        states = map(STATES.__getitem__, notes[:: NOTE.size])
        self.ended.update(zip(queue_offsets, states, strict=True))
        if replies:
            self._to_tell.add_noted(_Noted(queue_offsets, notes), replies)
        return PutEnds(end, put_count)

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
        if not ended or self._ends.has_unsealed or len(ended) > OPS_OF_RECORD_MAX:
            return
        tail = self._run.tail(Topic.OP, 0)
        if tail is None:
            return
        body, properties = plain_op(ended)
        run = self._run
        if run.put(tail, body, properties, TAGS_CODE, 0, 0, now_ms, run.host, 0) >= 0:
            self._op_offset = tail.next_offset - 1

    def commit(self, peer: Peer, now_ms: int) -> None:
        """The run is in the log: the halves have ended."""
        self._engine.mark_plain(self.ended, now_ms, self._op_offset)
        if self._to_tell.told_count:
            self._to_tell.are_put(peer, now_ms)
            if self._op_offset is None:
                self._ends.answer_run(self._to_tell)

    def tell(self) -> bool:
        """The replies to the other requests of the run are written: answer the ends, unless they
        are not sealed yet."""
        if self._op_offset is None:
            return False
        if self._to_tell.told_count:
            self._to_tell.say(self._run.end)
        return True

    def forget(self) -> None:
        """Clear the run."""
        self.ended.clear()
        self._op_offset = None
        if self._to_tell.told_count:
            self._to_tell = self._nobody()
