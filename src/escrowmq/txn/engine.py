"""The transactions of one broker: prepare, end once, and say what was done durably.

The end of a transaction is one group commit: the final record and the op record that names it are
appended in the same input, and the answer leaves when both have the durability of a plain send.
The first end wins. A later one is told the outcome and changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from escrowmq.base.extensions import EPOCH, MESSAGES, TRANSACTION
from escrowmq.base.limits import INT_MAX
from escrowmq.base.message import Message, Property, StoredMessage, Topic
from escrowmq.base.settings import BrokerSettings
from escrowmq.codec.properties import encode_properties, number_in
from escrowmq.store.store import Put, PutStatus, Store
from escrowmq.txn.again import follow, has_final, stored_again
from escrowmq.txn.bundle import BundleId, Bundles, bundle_of
from escrowmq.txn.claim import Claim, Ended, EndResult
from escrowmq.txn.epoch import Attempt, Epochs, attempt_of, stored_attempt
from escrowmq.txn.half import checks_counted, copy_to, final_of, half_of, immunity_ms
from escrowmq.txn.likeness import Likeness, likeness
from escrowmq.txn.meter import Counters, Meter
from escrowmq.txn.op import STATES, encode_op
from escrowmq.txn.pending import Pending, Row, Run
from escrowmq.txn.recent import Recent
from escrowmq.txn.state import WANTED, Ledger, State, Verdict, settle
from escrowmq.txn.tally import Tally
from escrowmq.txn.trail import Trail

_log = logging.getLogger(__name__)
_VERDICTS: Final = {State.COMMITTED: Verdict.COMMIT, State.EXPIRED: Verdict.EXPIRE}
_LETTER: Final = {state: letter for letter, state in STATES.items()}
_OPS_OF_RECORD_MAX: Final = 400
"""Ends named by one op record; the peer's bound is 4096 characters."""

AsDelivered = Callable[[Message, int], Message]
"""What is stored for a committed message at a time: itself, in the queue that its order key names,
or what stands for it until it is due."""


class _Done(msgspec.Struct):
    """An end that no op record names yet, with what it takes to undo it."""

    queue_offset: int
    state: State
    row: Row | None
    """Of a rollback."""
    bundle: BundleId | None
    attempt: Attempt | None
    who: str
    """The administrator that ended it; empty for a producer."""


class Engine:
    """Prepares and ends transactions; the index of pending ones is `pending`."""

    def __init__(
        self, store: Store, settings: BrokerSettings, *, host: bytes, as_delivered: AsDelivered
    ) -> None:
        self._store = store
        self._settings = settings
        self._host = host
        self._as_delivered = as_delivered
        self.pending = Pending()
        self.bundles = Bundles()
        self.epochs = Epochs()
        self.ledger = Ledger()
        self.tally = Tally(store.disk)
        self.trail = Trail()
        self.meter = Meter()
        self.counters = Counters()
        self.decided: dict[int, Verdict] = {}
        """Halves of a transaction that could be ended in part only: the rest follows."""
        self.quarantine: dict[int, str] = {}
        """Halves that cannot be read: queue offset and why."""
        self.parked: dict[str, dict[int, None]] = {}
        """Halves of each group that nobody was there to be asked about."""
        self.recent = Recent()
        self.carried: dict[int, int] = {}
        """Where halves stand by now that were carried forward, by their first queue offset."""
        self.aliases: dict[Likeness, int] = {}
        """Halves that a peer has stored again: an end may name the first copy."""
        self._done: list[_Done] = []
        self._sealed: list[tuple[int, list[int]]] = []

    # -- beginning ---------------------------------------------------------------------------

    def prepare(self, message: Message, now_ms: int, *, origin: str, account: str = "") -> Put:
        """Store a message invisibly until its transaction is ended."""
        half = half_of(message)
        properties = encode_properties(half.properties)
        put = self._store.put(half, now_ms, properties=properties)
        if put.log_offset >= 0:
            self.counters.prepared += 1
            self.recent.keep(half, properties, put)
            self.watch(
                half.properties,
                queue_offset=put.queue_offset,
                log_offset=put.log_offset,
                stored_ms=put.stored_ms,
                origin=origin,
                account=account,
            )
        return put

    def refusal(self, message: Message) -> str:
        """Why no half is stored for a message; empty when it is."""
        if len(self.pending) >= self._settings.pending_max:
            return (
                f"{len(self.pending)} transactions are pending, escrowPendingMax allows no more; "
                "end some of them first"
            )
        attempt = attempt_of(message.properties)
        if attempt is not None:
            return self.epochs.refusal(attempt)
        bundle = bundle_of(message.properties)
        return "" if bundle is None else self.bundles.refusal(bundle)

    def watch(
        self,
        properties: dict[str, str],
        *,
        queue_offset: int,
        log_offset: int,
        stored_ms: int,
        origin: str = "",
        account: str = "",
    ) -> None:
        """Take a stored half into the index, by its properties."""
        settings, wait_ms = self._settings, immunity_ms(properties)
        attempt = stored_attempt(properties) if EPOCH in properties else None
        if wait_ms is None:
            wait_ms = settings.transaction_timeout_ms if attempt is None else settings.epoch_ms
        topic = properties.get(Property.REAL_TOPIC, "")
        group = properties.get(Property.PGROUP, "")
        row = Row(
            log_offset=log_offset,
            stored_ms=stored_ms,
            due_ms=stored_ms + wait_ms,
            group=group,
            topic=topic,
            origin=origin,
            account=account,
            checks=max(checks_counted(properties), self.tally.count(queue_offset)),
        )
        self.pending.add(queue_offset, row)
        self.meter.note_pending(topic, group, 1)
        bundle = bundle_of(properties)
        if bundle is not None:
            self.bundles.add(bundle, queue_offset)
        if attempt is not None:
            self.epochs.add(attempt, queue_offset)

    def watch_run(self, run: Run) -> None:
        """Take halves of one shape into the index."""
        if run.shape is None or not run.queue_offsets:
            return
        wait_ms = run.shape.wait_ms
        if wait_ms is None:
            wait_ms = self._settings.transaction_timeout_ms
        self.pending.add_run(run, wait_ms=wait_ms)
        self.meter.note_pending(run.shape.topic, run.shape.group, len(run.queue_offsets))

    # -- ending ------------------------------------------------------------------------------

    def end(self, claim: Claim, now_ms: int) -> Ended:
        """End a transaction, or tell how it was ended."""
        if claim.queue_offset in self.carried:
            claim = follow(claim, self.carried[claim.queue_offset], self._store)
        half = self._half_at(claim.queue_offset, claim.log_offset)
        # The peer takes whatever record starts there; a record of another topic is none of ours.
        if half is None or half.topic != Topic.HALF:
            return Ended(EndResult.NOT_FOUND)
        unique_key = half.properties.get(Property.UNIQ_KEY, "")
        # After a loss of power another half may stand where the one that is meant was lost.
        if claim.ids[0] and unique_key and unique_key not in claim.ids:
            return Ended(EndResult.NOT_FOUND)
        if half.properties.get(Property.PGROUP) != claim.group:
            return Ended(EndResult.GROUP_WRONG)
        if half.queue_offset != claim.queue_offset:
            return Ended(EndResult.QUEUE_OFFSET_WRONG)
        queue_offset = claim.queue_offset
        if self.pending.log_offset(queue_offset) != claim.log_offset:
            later = self._stored_again(half)
            if later not in self.pending:
                return self._ended_before(half, claim.verdict)
            queue_offset = later
            if self.ledger.outcome(claim.queue_offset) == State.EXPIRED:
                half = self.read_half(later) or half
        if queue_offset in self.epochs:
            return Ended(EndResult.OF_EPOCH, queue_offset=queue_offset)
        if not claim.is_from_check and self._is_too_late(half, now_ms):
            return Ended(EndResult.TOO_LATE, queue_offset=queue_offset)
        members_count = len(self.bundles.members(queue_offset))
        if claim.count is not None and claim.count != members_count:
            return Ended(EndResult.COUNT_WRONG, queue_offset=queue_offset, count=members_count)
        return self.decide(
            half, claim.verdict, queue_offset=queue_offset, now_ms=now_ms, who=claim.who
        )

    def _is_too_late(self, half: StoredMessage, now_ms: int) -> bool:
        """Past its own immunity a message is ended by the answer to a check alone. The age is by
        the store time: the peer takes the producer's clock, which may be a day off."""
        if not half.properties.get(Property.CHECK_IMMUNITY_TIME):
            return False
        wish_ms = immunity_ms(half.properties) or 0
        return now_ms - half.stored_ms > max(wish_ms, self._settings.transaction_timeout_ms)

    def _stored_again(self, half: StoredMessage) -> int:
        alias = self.aliases.get(likeness(half.properties), -1)
        state = self.ledger.outcome(half.queue_offset)
        return stored_again(half, state=state, alias=alias, store=self._store)

    def _ended_before(self, half: StoredMessage, verdict: Verdict) -> Ended:
        state = self.outcome(half)
        answer = EndResult.REPEATED
        if state != State.SETTLED and verdict in WANTED and WANTED[verdict] != state:
            answer = EndResult.CONTRADICTED
            self.counters.contradicted += 1
            _log.warning(
                "transaction at half offset %d of %s is %s; %s comes too late and changes nothing",
                half.queue_offset,
                half.properties.get(Property.PGROUP),
                state.name,
                verdict.name,
            )
        else:
            self.counters.repeated += 1
        return Ended(answer, state, half.queue_offset, half.properties.get(Property.REAL_TOPIC, ""))

    def outcome(self, half: StoredMessage) -> State:
        """Where the transaction of a half stands. When nobody has noted how it was ended, its
        final record tells, if there is one."""
        if half.queue_offset in self.pending:
            return State.PENDING
        state = self.ledger.outcome(half.queue_offset) or State.SETTLED
        if state == State.EXPIRED and (later := self._stored_again(half)) >= 0:
            return self.ledger.outcome(later) or State.SETTLED
        if state == State.SETTLED and has_final(half, self._store):
            return State.COMMITTED
        return state

    def decide(
        self,
        half: StoredMessage,
        verdict: Verdict,
        *,
        queue_offset: int,
        now_ms: int,
        who: str = "",
    ) -> Ended:
        """Carry out a verdict on a pending transaction, with all its messages or with none."""
        state = settle(State.PENDING, verdict)
        if state == State.COMMITTED and queue_offset not in self.bundles:
            ended = self._commit_one(half, queue_offset, now_ms, who)
            if ended is not None:
                return ended
        members = self.bundles.members(queue_offset)
        topic = self.pending.topic(queue_offset)
        ended = Ended(EndResult.DONE, state, queue_offset, topic, count=len(members))
        if state == State.PENDING:
            ended.answer = EndResult.UNKNOWN
            return ended
        if state == State.ROLLED_BACK:
            for member in members:
                self._settled(member, state, now_ms, who)
            return ended
        return self._store_ends(ended, half, members, now_ms, who)

    def _commit_one(
        self, half: StoredMessage, queue_offset: int, now_ms: int, who: str
    ) -> Ended | None:
        """What `_store_ends` does, for a transaction of one message; None when it is not so simple.
        Measured: 5 us less of about 20."""
        final = final_of(half)
        if final is None or MESSAGES in half.properties:
            return None
        record = self._as_delivered(final, now_ms)
        topic = self.pending.topic(queue_offset)
        properties = self.recent.properties_of(record, queue_offset)
        put = self._store.put(record, now_ms, properties=properties, is_settling=True)
        if put.status is not PutStatus.OK:
            return Ended(EndResult.NOT_STORED, State.PENDING, queue_offset, topic, put)
        self._settled(queue_offset, State.COMMITTED, now_ms, who)
        return Ended(EndResult.DONE, State.COMMITTED, queue_offset, topic, put)

    def _store_ends(
        self, ended: Ended, half: StoredMessage, members: list[int], now_ms: int, who: str
    ) -> Ended:
        """The records that an end of this kind leaves, one for each message."""
        is_commit = ended.state == State.COMMITTED
        sources = [half if m == ended.queue_offset else self.read_half(m) for m in members]
        keys = {source.properties.get(Property.UNIQ_KEY, "") for source in sources if source}
        is_part = len(keys) < (number_in(half.properties.get(MESSAGES), most=INT_MAX) or 0)
        records: list[Message] = []
        for source in sources:
            record = self._record_of(source, now_ms, len(keys), is_commit=is_commit)
            if record is not None:
                records.append(record)
        is_broken = len(records) < len(members) or self.bundles.is_broken(ended.queue_offset)
        if is_commit and (is_broken or is_part) and ended.queue_offset not in self.decided:
            return Ended(EndResult.UNREADABLE, State.PENDING, ended.queue_offset, ended.topic)
        if len(records) > 1 and not self._store.has_room(records):
            put = Put(PutStatus.SERVICE_NOT_AVAILABLE, reason="no room for all messages")
            return Ended(EndResult.NOT_STORED, State.PENDING, ended.queue_offset, ended.topic, put)
        members = [member for member in members if member in self.pending]
        for nth, (member, record) in enumerate(zip(members, records, strict=True)):
            properties = self.recent.properties_of(record, member)
            put = self._store.put(record, now_ms, properties=properties, is_settling=True)
            if put.status is not PutStatus.OK:
                if nth:
                    self._owe(members[nth:], ended.state, now_ms)
                place = ended.queue_offset, ended.topic
                return Ended(EndResult.NOT_STORED, State.PENDING, *place, put)
            ended.put = put
            self._settled(member, ended.state, now_ms, who)
        return ended

    def _record_of(
        self, half: StoredMessage | None, now_ms: int, keys_count: int, *, is_commit: bool
    ) -> Message | None:
        if half is None:
            return None
        if not is_commit:
            if TRANSACTION not in half.properties or MESSAGES in half.properties:
                return copy_to(half, Topic.CHECK_MAX_TIME)
            return copy_to(half, Topic.CHECK_MAX_TIME, **{MESSAGES: str(keys_count)})
        final = final_of(half)
        return None if final is None else self._as_delivered(final, now_ms)

    def _owe(self, members: list[int], state: State, now_ms: int) -> None:
        """The disk failed in the middle of a transaction: what was decided is done as soon as it
        can be, and nobody is asked any more."""
        for member in members:
            self.decided[member] = _VERDICTS[state]
            self.pending.schedule(member, now_ms)

    def _settled(self, queue_offset: int, state: State, now_ms: int, who: str = "") -> None:
        bundle, attempt = self.bundles.of(queue_offset), self.epochs.of(queue_offset)
        # Only a rollback may have to be undone.
        row = self.pending.row(queue_offset) if state == State.ROLLED_BACK else None
        self._done.append(_Done(queue_offset, state, row, bundle, attempt, who))
        topic, group, stored_ms = self.pending.remove(queue_offset)
        self.recent.drop(queue_offset)
        if bundle is not None:
            self.bundles.remove(queue_offset, state)
        if attempt is not None:
            self.epochs.remove(queue_offset)
        if self.decided:
            self.decided.pop(queue_offset, None)
        if self.parked:
            self.unpark(queue_offset, group)
        self.ledger.record(queue_offset, state)
        meter = self.meter
        meter.note_pending(topic, group, -1)
        if state == State.COMMITTED:
            self.counters.committed += 1
            meter.committed[topic] += 1
            meter.note_latency(topic, now_ms - stored_ms)
        elif state == State.ROLLED_BACK:
            self.counters.rolled_back += 1
            meter.rolled_back[topic] += 1
        else:
            self.counters.expired += 1
            meter.expired[topic] += 1

    def unpark(self, queue_offset: int, group: str) -> None:
        """A half does not wait for somebody to ask any more."""
        parked = self.parked.get(group)
        if parked is not None and parked.pop(queue_offset, self) is None and not parked:
            del self.parked[group]

    def complete(self, members: list[int], now_ms: int) -> None:
        """Other messages of their transactions were made visible before the broker died."""
        self._owe(members, State.COMMITTED, now_ms)
        for member in members:
            half = self.read_half(member) if member in self.pending else None
            if half is not None:
                self.decide(half, Verdict.COMMIT, queue_offset=member, now_ms=now_ms)

    def mark_committed(self, queue_offset: int, now_ms: int) -> None:
        """Its final record was found in the log; only the op record is missing."""
        self._settled(queue_offset, State.COMMITTED, now_ms)

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
            some = self._take_chunk()
            op = encode_op(
                [(done.queue_offset, _LETTER[done.state]) for done in some],
                host=self._host,
                now_ms=now_ms,
                who=some[0].who,
                is_last=len(some) == len(self._done),
            )
            put = self._store.put(op, now_ms, is_settling=True)
            if put.status is not PutStatus.OK:
                return log_end, self._undo(now_ms)
            log_end = put.log_end
            self._sealed.append((put.queue_offset, [done.queue_offset for done in some]))
            del self._done[: len(some)]
        return log_end, frozenset()

    def _take_chunk(self) -> list[_Done]:
        """As many ends as one op record names. A transaction is never divided: that it was
        rolled back is then durable for all of its messages or for none."""
        count = min(_OPS_OF_RECORD_MAX, len(self._done))
        who = self._done[0].who
        count = next((n for n in range(count) if self._done[n].who != who), count)
        if count < len(self._done):
            bundle = self._done[count].bundle
            while bundle is not None and count > 1 and self._done[count - 1].bundle == bundle:
                count -= 1
        return self._done[:count]

    def take_sealed(self) -> list[tuple[int, list[int]]]:
        """The op records appended since the last call: queue offset, and the halves they name."""
        sealed, self._sealed = self._sealed, []
        return sealed

    def _undo(self, now_ms: int) -> frozenset[int]:
        undone = [(done, done.row) for done in self._done if done.row is not None]
        self._done = [done for done in self._done if done.row is None]
        for done, row in undone:
            self.ledger.record(done.queue_offset, State.PENDING)
            row.due_ms = now_ms + self._settings.transaction_check_interval_ms
            self.pending.add(done.queue_offset, row)
            if done.bundle is not None:
                self.bundles.reopen(done.bundle)
                self.bundles.add(done.bundle, done.queue_offset)
            if done.attempt is not None:
                self.epochs.add(done.attempt, done.queue_offset)
            self.meter.note_pending(row.topic, row.group, 1)
            self.meter.rolled_back[row.topic] -= 1
            self.counters.rolled_back -= 1
        self.counters.undone += len(undone)
        return frozenset(done.queue_offset for done, _ in undone)

    # -- what cannot be read -----------------------------------------------------------------

    def _half_at(self, queue_offset: int, log_offset: int) -> StoredMessage | None:
        half = self.recent.half(queue_offset=queue_offset, log_offset=log_offset)
        return half if half is not None else self._store.read(log_offset)

    def read_half(self, queue_offset: int) -> StoredMessage | None:
        """A pending half; None, and out of the way, when it cannot be read any more."""
        half = self._half_at(queue_offset, self.pending.log_offset(queue_offset))
        if half is None or half.topic != Topic.HALF:
            self.set_aside(queue_offset, "its record cannot be read")
            return None
        return half

    def done_with(self, queue_offset: int) -> None:
        """Have an op record name a half that is pending no longer, without an outcome."""
        self.ledger.record(queue_offset, State.SETTLED)
        self._done.append(_Done(queue_offset, State.SETTLED, None, None, None, ""))

    def set_aside(self, queue_offset: int, reason: str) -> None:
        """Nothing can be done about a pending half; it is out of the way, and its transaction can
        only be rolled back."""
        self.quarantine[queue_offset] = reason
        topic, group, stored_ms = self.pending.remove(queue_offset)
        self.recent.drop(queue_offset)
        self.decided.pop(queue_offset, None)
        self.meter.note_pending(topic, group, -1)
        self.epochs.remove(queue_offset)
        leader = self.bundles.remove(queue_offset, None)
        if leader is not None:
            self.pending.schedule(leader, stored_ms)
        _log.error("half message at queue offset %d is set aside: %s", queue_offset, reason)

    def resume(self, source: StoredMessage, now_ms: int) -> Put:
        """Have a discarded message asked about again, from the beginning."""
        half = copy_to(source, Topic.HALF, **{Property.TRANSACTION_CHECK_TIMES: "0"})
        put = self._store.put(half, now_ms)
        if put.log_offset >= 0:
            self.watch(
                half.properties,
                queue_offset=put.queue_offset,
                log_offset=put.log_offset,
                stored_ms=put.stored_ms,
            )
            self.aliases[likeness(half.properties)] = put.queue_offset
        return put
