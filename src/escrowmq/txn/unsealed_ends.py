"""The ends of an input: those without an op record yet, and the answers that wait for it. They are
sealed at the end of the input.

An end without a final record has no effect without its op record: if that cannot be stored, it is
pending again. A commit is proved by its final record; its op record follows later."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.store.store import PutStatus, Store
from escrowmq.txn.half_lifecycle import Halves, Settled
from escrowmq.txn.half_queue_progress import Progress
from escrowmq.txn.op_records import LETTERS, OPS_OF_RECORD_MAX, encode_op


class Sealed(NamedTuple):
    """The results of the ends of an input."""

    log_end: int
    """They are durable, with their finals, when the log is durable up to here."""
    undone: frozenset[int]
    """Half offsets whose end had to be undone."""


class EndAnswer(Protocol):
    """The answer to an END, or to several. An outcome that is reported a second time, or to a
    second client, is not reported any earlier."""

    def give(self, sealed: Sealed) -> None:
        """The ends of the input are sealed."""
        ...


class UnsealedEnds:
    """The unsealed ends, in order, and their answers."""

    def __init__(
        self,
        store: Store,
        settings: BrokerSettings,
        halves: Halves,
        progress: Progress,
        *,
        host: bytes,
    ) -> None:
        self._store = store
        self._settings = settings
        self._halves = halves
        self._progress = progress
        self._host = host
        self.ends: list[Settled] = []
        self.answers: list[EndAnswer] = []

    @property
    def has_any(self) -> bool:
        """Whether ends, or answers, wait for an op record."""
        return bool(self.ends or self.answers)

    def __bool__(self) -> bool:
        return bool(self.ends)

    @property
    def first(self) -> int | None:
        """The lowest queue offset among their halves."""
        return min((one.queue_offset for one in self.ends), default=None)

    def seal(self, now_ms: int) -> Sealed:
        """Append the op records of all ends, and give their answers."""
        sealed = self._put_records(now_ms)
        answers = self.answers.copy()
        self.answers.clear()
        for answer in answers:
            answer.give(sealed)
        return sealed

    def _put_records(self, now_ms: int) -> Sealed:
        log_end = self._store.log.end_offset
        while self.ends:
            some = self._next_record()
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
                return Sealed(log_end, self._undo(now_ms))
            log_end = put.log_end
            self._progress.note(put.queue_offset, [one.queue_offset for one in some])
            del self.ends[: len(some)]
        return Sealed(log_end, frozenset())

    def _next_record(self) -> list[Settled]:
        """The ends for the next op record. A transaction is never divided, so that its rollback
        becomes durable for all of its messages or for none."""
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

    def _undo(self, now_ms: int) -> frozenset[int]:
        undone = [one for one in self.ends if one.row is not None]
        self.ends[:] = [one for one in self.ends if one.row is None]
        due_ms = now_ms + self._settings.transaction_check_interval_ms
        for one in undone:
            self._halves.restore(one, due_ms)
        return frozenset(one.queue_offset for one in undone)
