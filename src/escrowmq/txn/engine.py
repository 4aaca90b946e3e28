"""The transactions of one broker: prepare, end once, and say what was done durably.

The end of a transaction is one group commit: the final record and the op record that names it are
appended in the same input, and the answer leaves when both have the durability of a plain send.
The first end wins. A later one is told the outcome and changes nothing.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from escrowmq.base.message import Message, Property, StoredMessage, Topic
from escrowmq.base.settings import BrokerSettings
from escrowmq.store.store import Put, PutStatus, Store
from escrowmq.txn.half import (
    checks_counted,
    copy_to,
    final_of,
    half_of,
    immunity_ms,
    real_place,
)
from escrowmq.txn.op import encode_op
from escrowmq.txn.pending import Pending, Row
from escrowmq.txn.state import WANTED, Ledger, State, Verdict, settle

_log = logging.getLogger(__name__)

_LETTER: Final = {State.COMMITTED: "c", State.ROLLED_BACK: "r", State.EXPIRED: "x"}
_OPS_OF_RECORD_MAX: Final = 400
"""Ends named by one op record; the peer's bound is 4096 characters."""

PutMessage = Callable[[Message, int], Put]


class Answer(enum.Enum):
    """How an end request went."""

    DONE = enum.auto()
    REPEATED = enum.auto()
    CONTRADICTED = enum.auto()
    UNKNOWN = enum.auto()
    NOT_FOUND = enum.auto()
    GROUP_WRONG = enum.auto()
    QUEUE_OFFSET_WRONG = enum.auto()
    TOO_LATE = enum.auto()
    NOT_STORED = enum.auto()


class Ended(msgspec.Struct):
    """The answer to an end request, and where the transaction stands after it."""

    answer: Answer
    state: State = State.PENDING
    queue_offset: int = -1
    topic: str = ""
    put: Put | None = None


class _Done(msgspec.Struct):
    """An end that no op record names yet, with what it takes to undo it."""

    queue_offset: int
    state: State
    row: Row


class Counters(msgspec.Struct):
    """What happened since the start."""

    prepared: int = 0
    committed: int = 0
    rolled_back: int = 0
    expired: int = 0
    repeated: int = 0
    contradicted: int = 0
    undone: int = 0


class Engine:
    """Prepares and ends transactions; the index of pending ones is `pending`."""

    def __init__(self, store: Store, settings: BrokerSettings, *, host: bytes) -> None:
        self._store = store
        self._settings = settings
        self._host = host
        self.pending = Pending()
        self.ledger = Ledger()
        self.counters = Counters()
        self.half_counts: dict[str, int] = {}
        """Pending halves by topic."""
        self.quarantine: dict[int, str] = {}
        """Halves that cannot be read: queue offset and why."""
        self.aliases: dict[str, int] = {}
        """Unique keys of halves that a peer has stored again: an end may name the first copy."""
        self._done: list[_Done] = []
        self._sealed: list[tuple[int, list[int]]] = []

    # -- beginning ---------------------------------------------------------------------------

    def prepare(self, message: Message, now_ms: int, *, origin: str) -> Put:
        """Store a message invisibly until its transaction is ended."""
        half = half_of(message)
        put = self._store.put(half, now_ms)
        if put.log_offset >= 0:
            self.counters.prepared += 1
            self.watch(
                half,
                queue_offset=put.queue_offset,
                log_offset=put.log_offset,
                stored_ms=put.stored_ms,
                origin=origin,
            )
        return put

    def watch(
        self, half: Message, *, queue_offset: int, log_offset: int, stored_ms: int, origin: str
    ) -> None:
        """Take a stored half into the index."""
        properties = half.properties
        wait_ms = immunity_ms(properties)
        if wait_ms is None:
            wait_ms = self._settings.transaction_timeout_ms
        topic = properties.get(Property.REAL_TOPIC, "")
        row = Row(
            log_offset=log_offset,
            stored_ms=stored_ms,
            due_ms=stored_ms + wait_ms,
            group=properties.get(Property.PGROUP, ""),
            topic=topic,
            origin=origin,
            checks=checks_counted(properties),
        )
        self.pending.add(queue_offset, row)
        self.half_counts[topic] = self.half_counts.get(topic, 0) + 1

    # -- ending ------------------------------------------------------------------------------

    def end(
        self,
        *,
        log_offset: int,
        queue_offset: int,
        group: str,
        verdict: Verdict,
        is_from_check: bool,
        now_ms: int,
        ids: tuple[str, str] = ("", ""),
    ) -> Ended:
        """End a transaction, or tell how it was ended. `ids` are those of the transaction and the
        message as the producer knows them; either is the half's unique key."""
        half = self._store.read(log_offset)
        # The peer takes whatever record starts there; a record of another topic is none of ours.
        if half is None or half.topic != Topic.HALF:
            return Ended(Answer.NOT_FOUND)
        # After a loss of power another half may stand where the one that is meant was lost.
        if ids[0] and half.properties.get(Property.UNIQ_KEY, ids[0]) not in ids:
            return Ended(Answer.NOT_FOUND)
        if half.properties.get(Property.PGROUP) != group:
            return Ended(Answer.GROUP_WRONG)
        if half.queue_offset != queue_offset:
            return Ended(Answer.QUEUE_OFFSET_WRONG)
        if self.pending.log_offset(queue_offset) != log_offset:
            alias = self.aliases.get(half.properties.get(Property.UNIQ_KEY, ""))
            if alias is None or alias not in self.pending:
                return self._ended_before(half, verdict)
            queue_offset = alias
        if not is_from_check and self._is_too_late(half, now_ms):
            return Ended(Answer.TOO_LATE, queue_offset=queue_offset)
        return self.decide(half, verdict, queue_offset=queue_offset, now_ms=now_ms)

    def _is_too_late(self, half: StoredMessage, now_ms: int) -> bool:
        """Past its own immunity a message is ended by the answer to a check alone. The age is by
        the store time: the peer takes the producer's clock, which may be a day off."""
        if not half.properties.get(Property.CHECK_IMMUNITY_TIME):
            return False
        wish_ms = immunity_ms(half.properties) or 0
        return now_ms - half.stored_ms > max(wish_ms, self._settings.transaction_timeout_ms)

    def _ended_before(self, half: StoredMessage, verdict: Verdict) -> Ended:
        state = self.ledger.outcome(half.queue_offset) or State.SETTLED
        answer = Answer.REPEATED
        if state == State.SETTLED or verdict == Verdict.UNKNOWN:
            answer = Answer.REPEATED
        elif WANTED.get(verdict) != state:
            answer = Answer.CONTRADICTED
            self.counters.contradicted += 1
            _log.warning(
                "transaction at half offset %d of %s is %s; %s comes too late and changes nothing",
                half.queue_offset,
                half.properties.get(Property.PGROUP),
                state.name,
                verdict.name,
            )
        if answer == Answer.REPEATED:
            self.counters.repeated += 1
        return Ended(answer, state, half.queue_offset, half.properties.get(Property.REAL_TOPIC, ""))

    def decide(
        self, half: StoredMessage, verdict: Verdict, *, queue_offset: int, now_ms: int
    ) -> Ended:
        """Carry out a verdict on a pending transaction."""
        place = real_place(half)
        topic = place[0] if place else ""
        state = settle(State.PENDING, verdict)
        if state == State.PENDING:
            return Ended(Answer.UNKNOWN, state, queue_offset, topic)
        put: Put | None = None
        if state == State.COMMITTED:
            final = final_of(half)
            if final is None:
                return Ended(Answer.NOT_FOUND, State.PENDING, queue_offset)
            put = self._store.put(final, now_ms, is_settling=True)
        elif state == State.EXPIRED:
            put = self._store.put(copy_to(half, Topic.CHECK_MAX_TIME), now_ms, is_settling=True)
        if put is not None and put.status is not PutStatus.OK:
            return Ended(Answer.NOT_STORED, State.PENDING, queue_offset, topic, put)
        self._settled(queue_offset, state)
        return Ended(Answer.DONE, state, queue_offset, topic, put)

    def _settled(self, queue_offset: int, state: State) -> None:
        row = self.pending.row(queue_offset)
        self._done.append(_Done(queue_offset, state, row))
        self.pending.remove(queue_offset)
        self.ledger.record(queue_offset, state)
        self.half_counts[row.topic] -= 1
        match state:
            case State.COMMITTED:
                self.counters.committed += 1
            case State.ROLLED_BACK:
                self.counters.rolled_back += 1
            case _:
                self.counters.expired += 1

    def mark_committed(self, queue_offset: int) -> None:
        """Its final record was found in the log; only the op record is missing."""
        self._settled(queue_offset, State.COMMITTED)

    @property
    def has_unsealed(self) -> bool:
        """Whether an end waits for its op record."""
        return bool(self._done)

    def seal(self, now_ms: int) -> tuple[int, frozenset[int]]:
        """Append the op records of the ends of this input: the log offset up to which they are
        durable together with their finals, and the half offsets whose end had to be undone.

        An end without a final record is nothing without its op record: it is pending again when
        that cannot be stored. A commit stands by its final record; its op record follows later."""
        log_end = self._store.end_offset
        while self._done:
            some = self._done[:_OPS_OF_RECORD_MAX]
            op = encode_op(
                [(done.queue_offset, _LETTER[done.state]) for done in some],
                host=self._host,
                now_ms=now_ms,
            )
            put = self._store.put(op, now_ms, is_settling=True)
            if put.status is not PutStatus.OK:
                return log_end, self._undo(now_ms)
            log_end = put.log_end
            self._sealed.append((put.queue_offset, [done.queue_offset for done in some]))
            del self._done[: len(some)]
        return log_end, frozenset()

    def take_sealed(self) -> list[tuple[int, list[int]]]:
        """The op records appended since the last call: queue offset, and the halves they name."""
        sealed, self._sealed = self._sealed, []
        return sealed

    def _undo(self, now_ms: int) -> frozenset[int]:
        undone = [done for done in self._done if done.state == State.ROLLED_BACK]
        self._done = [done for done in self._done if done.state != State.ROLLED_BACK]
        for done in undone:
            self.ledger.record(done.queue_offset, State.PENDING)
            done.row.due_ms = now_ms + self._settings.transaction_check_interval_ms
            self.pending.add(done.queue_offset, done.row)
            self.half_counts[done.row.topic] += 1
            self.counters.rolled_back -= 1
        self.counters.undone += len(undone)
        return frozenset(done.queue_offset for done in undone)

    # -- what cannot be read -----------------------------------------------------------------

    def read_half(self, queue_offset: int) -> StoredMessage | None:
        """A pending half; None, and out of the way, when it cannot be read any more."""
        half = self._store.read(self.pending.log_offset(queue_offset))
        if half is None or half.topic != Topic.HALF:
            reason = "its record cannot be read"
            self.quarantine[queue_offset] = reason
            self.half_counts[self.pending.topic(queue_offset)] -= 1
            self.pending.remove(queue_offset)
            _log.error("half message at queue offset %d is set aside: %s", queue_offset, reason)
            return None
        return half

    def resume(self, source: StoredMessage, now_ms: int) -> Put:
        """Have a discarded message asked about again, from the beginning."""
        half = copy_to(source, Topic.HALF, **{Property.TRANSACTION_CHECK_TIMES: "0"})
        put = self._store.put(half, now_ms)
        if put.log_offset >= 0:
            self.watch(
                half,
                queue_offset=put.queue_offset,
                log_offset=put.log_offset,
                stored_ms=put.stored_ms,
                origin="",
            )
        return put
