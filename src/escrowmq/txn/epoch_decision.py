"""Stores decisions about epochs: one durable record is the commit point of all messages of a batch.

The record is appended before the first message that it makes visible. If a crash interrupts the
rest, the next start completes it: it ends the pending halves of decided epochs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

import msgspec

from escrowmq.base.message import Message, Property, StoredMessage, Topic
from escrowmq.store.store import PutResult, PutStatus, Store
from escrowmq.store.walk import walk_queue
from escrowmq.txn.decisions import LastDecision, StreamQuery
from escrowmq.txn.engine import TransactionEngine
from escrowmq.txn.epoch import EpochAttempt
from escrowmq.txn.state import Verdict

_log = logging.getLogger(__name__)

PATH: Final = "escrow/decisions"

_AT_ONCE_COUNT: Final = 4096
_AT_ONCE_SIZE: Final = 16 * 1024 * 1024
"""The most bytes of messages of a batch that become visible in one turn."""


class _DecisionRecord(msgspec.Struct):
    """The body of a decision record. The decisions file has the same entries."""

    group: str
    query: str
    batch: int
    tokens: dict[str, int]


class _DecisionsFile(msgspec.Struct):
    """The content of the decisions file: the newest decision of every query, from the records
    before an offset."""

    end: int
    decisions: list[_DecisionRecord]


class DecidedEpoch(msgspec.Struct):
    """The result of a request for a decision."""

    tokens: dict[str, int]
    is_new: bool = False
    refusal: str = ""
    put: PutResult | None = None
    """The failed result of storing the decision record; None if it was stored."""


class EpochDecider:
    """Stores decisions about epochs, and ends their halves accordingly."""

    def __init__(self, engine: TransactionEngine, store: Store, *, host: bytes) -> None:
        self._engine = engine
        self._epochs = engine.halves.epochs
        self._store = store
        self._host = host
        self._end = 0
        self._saved_end = -1

    # -- life --------------------------------------------------------------------------------

    def load(self, saved: bytes | None, now_ms: int) -> None:
        """Load the decisions. Call it once the engine knows the pending halves."""
        low, high = self._store.bounds(Topic.DECISIONS, 0)
        file = _decode_file(saved)
        if file is not None:
            for record in file.decisions:
                self._record_decision(record)
            low = max(low, min(file.end, high))
        for message in walk_queue(self._store, Topic.DECISIONS, low, high):
            self._load_record(message)
        self._end = high
        owed = 0
        for attempt, _ in self._epochs.settled_by_decision():
            owed += self._schedule_ends(attempt, now_ms)
        if owed:
            _log.info("%d halves of decided batches are ended now", owed)

    def _load_record(self, message: StoredMessage) -> None:
        try:
            self._record_decision(msgspec.json.decode(message.body, type=_DecisionRecord))
        except msgspec.DecodeError as error:
            _log.error("decision record %d is skipped: %s", message.queue_offset, error)

    def _record_decision(self, record: _DecisionRecord) -> None:
        decision = LastDecision(record.batch, _tokens_with_halves(record.tokens))
        self._epochs.decisions.record(StreamQuery(record.group, record.query), decision)

    def save(self) -> bytes | None:
        """Return the content of the decisions file; None if no decision is newer than the last
        saved one."""
        if self._end == self._saved_end or not self._epochs.decisions:
            return None
        self._saved_end = self._end
        lines = [
            _DecisionRecord(query.group, query.name, decision.batch, decision.tokens)
            for query, decision in self._epochs.decisions.items()
        ]
        return msgspec.json.encode(_DecisionsFile(self._end, lines))

    # -- deciding ----------------------------------------------------------------------------

    def decide(
        self, query: StreamQuery, batch: int, tokens: dict[str, int], now_ms: int
    ) -> DecidedEpoch:
        """Decide an epoch: make the halves of these tokens visible, and drop all others of this and
        earlier batches. If the batch is decided already, return that decision, and drop those
        halves of the given tokens that it does not count."""
        known = self._epochs.decision(query, batch)
        if known is not None:
            self.abandon(query, batch, tokens.keys() - known.tokens.keys(), now_ms)
            return DecidedEpoch(known.tokens)
        for token, count in tokens.items():
            attempt = EpochAttempt(query, batch, token)
            if self._epochs.verdict(attempt) is not None:
                reason = f"token {token} of batch {batch} of {query.name} was abandoned"
                return DecidedEpoch({}, refusal=f"{reason}; nothing was changed")
            there = self._epochs.halves_count(attempt)
            if there != count:
                reason = (
                    f"token {token} has {there} pending halves in batch {batch} of {query.name}, "
                    f"not {count}; nothing was changed"
                )
                return DecidedEpoch({}, refusal=reason)
        tokens = _tokens_with_halves(tokens)
        # The reserve on a full disk is for ends alone.
        is_settling = any(attempt.batch <= batch for attempt in self._epochs.attempts(query))
        put = self._store.put(
            self._build_record(query, batch, tokens, now_ms), now_ms, is_settling=is_settling
        )
        if put.status is not PutStatus.OK:
            return DecidedEpoch({}, put=put)
        self._end = put.queue_offset + 1
        self._epochs.decisions.record(query, LastDecision(batch, tokens))
        self._carry_out(query, now_ms)
        return DecidedEpoch(tokens, is_new=True)

    def abandon(self, query: StreamQuery, batch: int, tokens: Iterable[str], now_ms: int) -> int:
        """Drop the halves of attempts that no decision counts. Return their number."""
        attempts = [EpochAttempt(query, batch, token) for token in tokens]
        attempts = [one for one in attempts if self._epochs.verdict(one) is not Verdict.COMMIT]
        for attempt in attempts:
            self._epochs.abandon(attempt)
        count = sum(map(self._epochs.halves_count, attempts))
        self._end_attempts(attempts, now_ms)
        return count

    def is_carried_out(self, query: StreamQuery, batch: int) -> bool:
        """Whether no half of a query is left in batches up to this one."""
        return all(attempt.batch > batch for attempt in self._epochs.attempts(query))

    def _build_record(
        self, query: StreamQuery, batch: int, tokens: dict[str, int], now_ms: int
    ) -> Message:
        record = _DecisionRecord(query.group, query.name, batch, tokens)
        return Message(
            topic=Topic.DECISIONS,
            body=msgspec.json.encode(record),
            properties={Property.KEYS: f"{query.name}/{batch}", Property.WAIT: "true"},
            born_ms=now_ms,
            born_host=self._host,
            store_host=self._host,
        )

    def _carry_out(self, query: StreamQuery, now_ms: int) -> None:
        """End the query's halves that have a verdict, those to be committed first."""
        attempts = self._epochs.attempts(query)
        attempts.sort(key=lambda attempt: self._epochs.verdict(attempt) is not Verdict.COMMIT)
        self._end_attempts(attempts, now_ms)

    def _end_attempts(self, attempts: Iterable[EpochAttempt], now_ms: int) -> None:
        """End attempts that have a verdict, up to the limit of one turn; the others follow by their
        deadlines."""
        count = size = 0
        for attempt in attempts:
            verdict = self._epochs.verdict(attempt)
            if verdict is None:
                continue
            for queue_offset in self._epochs.halves(attempt):
                if count >= _AT_ONCE_COUNT or size >= _AT_ONCE_SIZE:
                    self._schedule_ends(attempt, now_ms)
                    break
                size += self._end_half(queue_offset, verdict, now_ms)
                count += 1

    def _end_half(self, queue_offset: int, verdict: Verdict, now_ms: int) -> int:
        """End one half of an epoch. Return its record size; 0 if it is unreadable."""
        half = self._engine.halves.open_half(queue_offset)
        if half is None:
            return 0
        self._engine.carry_out_verdict(half, verdict, now_ms=now_ms)
        if queue_offset in self._engine.halves.pending:
            self._engine.halves.pending.schedule(queue_offset, now_ms)
        return half.message.record_size

    def _schedule_ends(self, attempt: EpochAttempt, now_ms: int) -> int:
        """Make the halves of an attempt due now, so that the checker ends them. Return their
        number."""
        halves = self._epochs.halves(attempt)
        for queue_offset in halves:
            self._engine.halves.pending.schedule(queue_offset, now_ms)
        return len(halves)


def _tokens_with_halves(tokens: dict[str, int]) -> dict[str, int]:
    """Return the tokens that have halves: the others would only take memory."""
    return {token: count for token, count in tokens.items() if count}


def _decode_file(saved: bytes | None) -> _DecisionsFile | None:
    if saved is None:
        return None
    try:
        return msgspec.json.decode(saved, type=_DecisionsFile)
    except msgspec.DecodeError as error:
        _log.error("%s cannot be read; only decisions still in the log are known: %s", PATH, error)
        return None
