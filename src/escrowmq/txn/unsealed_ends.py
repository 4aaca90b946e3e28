"""The ends of the current input: they wait for their op record, and the answers to them wait too.

At the end of the input they are sealed: the op record is appended. A rollback has no effect without
its op record: if that cannot be stored, the half is pending again. A commit is proved by its final
record, so its op record may follow later.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.store.store import PutStatus, Store
from escrowmq.txn.half_lifecycle import Halves, SettledHalf
from escrowmq.txn.half_queue_progress import HalfQueueProgress
from escrowmq.txn.op_records import LETTERS, OPS_OF_RECORD_MAX, encode_op


class SealResult(NamedTuple):
    """The result of sealing the ends of an input."""

    log_end: int
    """The ends are durable when the log is durable up to here."""
    undone: frozenset[int]
    """Queue offsets of halves whose rollback was undone, because the op record could not be
    stored."""


class EndAnswer(Protocol):
    """Sends the answer to one or several ENDs once they are sealed. A repeated END waits for the op
    record too, so that no client learns an outcome earlier than another."""

    def send_answer(self, sealed: SealResult) -> None:
        """Send the answers, now that the ends of the input are sealed."""
        ...


class UnsealedEnds:
    """The ends that have no op record yet, in order, and the answers that wait for them."""

    def __init__(
        self,
        store: Store,
        settings: BrokerSettings,
        halves: Halves,
        progress: HalfQueueProgress,
        *,
        host: bytes,
    ) -> None:
        self._store = store
        self._settings = settings
        self._halves = halves
        self._progress = progress
        self._host = host
        self.ends: list[SettledHalf] = []
        self.answers: list[EndAnswer] = []

    @property
    def has_any(self) -> bool:
        """Whether ends or answers wait for an op record."""
        return bool(self.ends or self.answers)

    def __bool__(self) -> bool:
        return bool(self.ends)

    @property
    def lowest_offset(self) -> int | None:
        """The lowest queue offset of their halves; None without any."""
        return min((one.queue_offset for one in self.ends), default=None)

    def seal(self, now_ms: int) -> SealResult:
        """Append the op records of all ends, and send the waiting answers."""
        sealed = self._append_op_records(now_ms)
        answers = self.answers.copy()
        self.answers.clear()
        for answer in answers:
            answer.send_answer(sealed)
        return sealed

    def _append_op_records(self, now_ms: int) -> SealResult:
        log_end = self._store.log.end_offset
        while self.ends:
            some = self._ends_for_next_record()
            op = encode_op(
                [(one.queue_offset, LETTERS[one.state]) for one in some],
                host=self._host,
                now_ms=now_ms,
                bundles={one.bundle.digest: LETTERS[one.state] for one in some if one.bundle},
                who=some[0].who,
                is_last=len(some) == len(self.ends),
            )
            put = self._store.put(op, now_ms, is_settling=True)
            if put.status is not PutStatus.OK:
                return SealResult(log_end, self._undo_rollbacks(now_ms))
            log_end = put.log_end
            self._progress.add_op_record(put.queue_offset, [one.queue_offset for one in some])
            del self.ends[: len(some)]
        return SealResult(log_end, frozenset())

    def _ends_for_next_record(self) -> list[SettledHalf]:
        """Return the ends for the next op record. All ends of a transaction go into one record, so
        that its rollback becomes durable for all messages or for none."""
        ends = self.ends
        count = min(OPS_OF_RECORD_MAX, len(ends))
        who = ends[0].who
        count = next((n for n in range(count) if ends[n].who != who), count)
        if count < len(ends) and (bundle := ends[count].bundle) is not None:
            first = count
            while first and ends[first - 1].bundle == bundle:
                first -= 1
            if first:
                return ends[:first]
            while count < len(ends) and ends[count].bundle == bundle:
                count += 1
        return ends[:count]

    def _undo_rollbacks(self, now_ms: int) -> frozenset[int]:
        undone = [one for one in self.ends if one.row is not None]
        self.ends[:] = [one for one in self.ends if one.row is None]
        due_ms = now_ms + self._settings.transaction_check_interval_ms
        for one in undone:
            self._halves.restore(one, due_ms)
        return frozenset(one.queue_offset for one in undone)
