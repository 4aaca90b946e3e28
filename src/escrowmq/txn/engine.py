"""The transactions of one broker: prepare, end once, and say what was done durably.

The end of a transaction is one group commit: the final record and the op record that names it are
appended in the same input, and the answer leaves when both have the durability of a plain send.
The first end wins. A later one is told the outcome and changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.fixed_limits import INT_MAX
from escrowmq.base.message import Message, Property, StoredMessage, Topic
from escrowmq.base.own_properties import MESSAGES, TRANSACTION
from escrowmq.codec.properties import encode_properties, number_in
from escrowmq.store.store import Put, PutStatus, Store
from escrowmq.txn.check_counts import Tally
from escrowmq.txn.check_immunity import immunity_ms
from escrowmq.txn.doubled_halves import follow, has_final, stored_again
from escrowmq.txn.end_claim import Claim, Ended, EndResult
from escrowmq.txn.half_identity import likeness
from escrowmq.txn.half_lifecycle import Halves
from escrowmq.txn.half_queue_progress import Progress
from escrowmq.txn.half_records import copy_to, final_of, half_of
from escrowmq.txn.state import WANTED, State, Verdict, settle
from escrowmq.txn.unsealed_ends import UnsealedEnds

_log = logging.getLogger(__name__)
_VERDICTS: Final = {State.COMMITTED: Verdict.COMMIT, State.EXPIRED: Verdict.EXPIRE}
_HOUR_MS: Final = 3_600_000

AsDelivered = Callable[[Message, int], Message]
"""What is stored for a committed message at a time: itself, in the queue that its order key names,
or what stands for it until it is due."""


class Engine:
    """Prepares and ends transactions; the index of pending ones is `pending`."""

    def __init__(
        self, store: Store, settings: BrokerSettings, *, host: bytes, as_delivered: AsDelivered
    ) -> None:
        self._store = store
        self._settings = settings
        self._as_delivered = as_delivered
        self.halves = Halves(
            settings,
            Tally(store.disk),
            age_max_ms=lambda: store.settings.reserved_hours * _HOUR_MS,
        )
        self.progress = Progress()
        self.unsealed = UnsealedEnds(store, settings, self.halves, self.progress, host=host)

    # -- beginning ---------------------------------------------------------------------------

    def prepare(self, message: Message, now_ms: int, *, origin: str, account: str = "") -> Put:
        """Store a message invisibly until its transaction is ended."""
        half = half_of(message)
        properties = encode_properties(half.properties)
        put = self._store.put(half, now_ms, properties=properties)
        if put.log_offset >= 0:
            self.halves.counters.prepared += 1
            self.halves.recent.keep(half, properties, put)
            self.halves.enter(
                half.properties,
                queue_offset=put.queue_offset,
                log_offset=put.log_offset,
                stored_ms=put.stored_ms,
                origin=origin,
                account=account,
            )
            if TRANSACTION in half.properties:
                self.halves.bundles.grow(put.queue_offset, len(half.body))
        return put

    # -- ending ------------------------------------------------------------------------------

    def end(self, claim: Claim, now_ms: int) -> Ended:
        """End a transaction, or tell how it was ended."""
        if claim.queue_offset in self.halves.carried:
            claim = follow(claim, self.halves.carried[claim.queue_offset], self._store)
        half = self._half_at(claim.queue_offset, claim.log_offset)
        # RocketMQ takes whatever record starts there; a record of another topic is none of ours.
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
        if self.halves.pending.log_offset(queue_offset) != claim.log_offset:
            later = self._stored_again(half)
            if later not in self.halves.pending:
                return self._ended_before(half, claim.verdict)
            queue_offset = later
            # What was resumed begins anew: by the first copy's age its end would come too late.
            if self.halves.ledger.outcome(claim.queue_offset) == State.EXPIRED:
                half = self.half(later) or half
        if queue_offset in self.halves.epochs:
            return Ended(EndResult.OF_EPOCH, queue_offset=queue_offset)
        if not claim.is_from_check and self._is_too_late(half, now_ms):
            return Ended(EndResult.TOO_LATE, queue_offset=queue_offset)
        members_count = len(self.halves.bundles.members(queue_offset))
        if claim.count is not None and claim.count != members_count:
            return Ended(EndResult.COUNT_WRONG, queue_offset=queue_offset, count=members_count)
        return self.decide(
            half, claim.verdict, queue_offset=queue_offset, now_ms=now_ms, who=claim.who
        )

    def _is_too_late(self, half: StoredMessage, now_ms: int) -> bool:
        """Past its own immunity a message is ended by the answer to a check alone. The age is by
        the store time: RocketMQ takes the producer's clock, which may be a day off."""
        if not half.properties.get(Property.CHECK_IMMUNITY_TIME):
            return False
        wish_ms = immunity_ms(half.properties) or 0
        return now_ms - half.stored_ms > max(wish_ms, self._settings.transaction_timeout_ms)

    def _stored_again(self, half: StoredMessage) -> int:
        alias = self.halves.aliases.get(likeness(half.properties), -1)
        state = self.halves.ledger.outcome(half.queue_offset)
        return stored_again(half, state=state, alias=alias, store=self._store)

    def _ended_before(self, half: StoredMessage, verdict: Verdict) -> Ended:
        state = self.outcome(half)
        answer = EndResult.REPEATED
        if state != State.SETTLED and verdict in WANTED and WANTED[verdict] != state:
            answer = EndResult.CONTRADICTED
            self.halves.counters.contradicted += 1
            _log.warning(
                "transaction at half offset %d of %s is %s; %s comes too late and changes nothing",
                half.queue_offset,
                half.properties.get(Property.PGROUP),
                state.name,
                verdict.name,
            )
        else:
            self.halves.counters.repeated += 1
        return Ended(answer, state, half.queue_offset, half.properties.get(Property.REAL_TOPIC, ""))

    def outcome(self, half: StoredMessage) -> State:
        """Where the transaction of a half stands. When nobody has noted how it was ended, its
        final record tells, if there is one."""
        if half.queue_offset in self.halves.pending:
            return State.PENDING
        state = self.halves.ledger.outcome(half.queue_offset) or State.SETTLED
        if state == State.EXPIRED and (later := self._stored_again(half)) >= 0:
            return self.halves.ledger.outcome(later) or State.SETTLED
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
        if state == State.COMMITTED and queue_offset not in self.halves.bundles:
            ended = self._commit_one(half, queue_offset, now_ms, who)
            if ended is not None:
                return ended
        members = self.halves.bundles.members(queue_offset)
        topic = self.halves.pending.topic(queue_offset)
        ended = Ended(EndResult.DONE, state, queue_offset, topic, count=len(members))
        if state == State.PENDING:
            ended.answer = EndResult.UNKNOWN
            return ended
        if state == State.ROLLED_BACK:
            for member in members:
                self.mark_ended(member, state, now_ms, who)
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
        topic = self.halves.pending.topic(queue_offset)
        properties = self.halves.recent.properties_of(record, queue_offset)
        put = self._store.put(record, now_ms, properties=properties, is_settling=True)
        if put.status is not PutStatus.OK:
            return Ended(EndResult.NOT_STORED, State.PENDING, queue_offset, topic, put)
        self.mark_ended(queue_offset, State.COMMITTED, now_ms, who)
        return Ended(EndResult.DONE, State.COMMITTED, queue_offset, topic, put)

    def _store_ends(
        self, ended: Ended, half: StoredMessage, members: list[int], now_ms: int, who: str
    ) -> Ended:
        """The records that an end of this kind leaves, one for each message."""
        is_commit = ended.state == State.COMMITTED
        sources = [half if m == ended.queue_offset else self.half_or_set_aside(m) for m in members]
        keys = {source.properties.get(Property.UNIQ_KEY, "") for source in sources if source}
        # A bundle that says how many messages it has is never committed by a part of them: the rest
        # may be on its way, or was lost with the power. By keys: a half that was sent twice is one.
        is_part = len(keys) < (number_in(half.properties.get(MESSAGES), most=INT_MAX) or 0)
        records: list[Message] = []
        for source in sources:
            record = self._record_of(source, now_ms, len(keys), is_commit=is_commit)
            if record is not None:
                records.append(record)
        is_broken = len(records) < len(members) or self.halves.bundles.is_broken(ended.queue_offset)
        # What is decided is the rest of a commit: its other messages have left the bundle already,
        # so that it counts fewer than it says.
        if is_commit and (is_broken or is_part) and ended.queue_offset not in self.halves.decided:
            return Ended(EndResult.UNREADABLE, State.PENDING, ended.queue_offset, ended.topic)
        # Asked for all before the first is put: what consumers have seen cannot be taken back.
        if len(records) > 1 and not self._store.has_room(records):
            put = Put(PutStatus.SERVICE_NOT_AVAILABLE, reason="no room for all messages")
            return Ended(EndResult.NOT_STORED, State.PENDING, ended.queue_offset, ended.topic, put)
        # Those that could not be read were set aside on the way.
        members = [member for member in members if member in self.halves.pending]
        for nth, (member, record) in enumerate(zip(members, records, strict=True)):
            properties = self.halves.recent.properties_of(record, member)
            put = self._store.put(record, now_ms, properties=properties, is_settling=True)
            if put.status is not PutStatus.OK:
                if nth:  # some are visible: the others follow, whatever a later end says
                    self.halves.owe(members[nth:], _VERDICTS[ended.state], now_ms)
                place = ended.queue_offset, ended.topic
                return Ended(EndResult.NOT_STORED, State.PENDING, *place, put)
            ended.put = put
            self.mark_ended(member, ended.state, now_ms, who)
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

    def complete(self, members: list[int], now_ms: int) -> None:
        """Other messages of their transactions were made visible before the broker died."""
        self.halves.owe(members, Verdict.COMMIT, now_ms)
        for member in members:
            half = self.half_or_set_aside(member) if member in self.halves.pending else None
            if half is not None:
                self.decide(half, Verdict.COMMIT, queue_offset=member, now_ms=now_ms)

    def mark_ended(self, queue_offset: int, state: State, now_ms: int, who: str = "") -> None:
        """It ends so: what a commit has to store is in the log, and only the op record missing."""
        self.unsealed.add(self.halves.settle(queue_offset, state, now_ms, who))

    def mark_plain(self, ended: Mapping[int, State], now_ms: int) -> None:
        """The same for some with nothing special about them (txn/plain_halves), by queue offset."""
        if len(ended) == 1:  # it takes 3 us less
            for queue_offset, state in ended.items():
                self.mark_ended(queue_offset, state, now_ms)
        else:
            self.unsealed.ends += self.halves.settle_plain(ended, now_ms)

    # -- halves in the log -------------------------------------------------------------------

    def _half_at(self, queue_offset: int, log_offset: int) -> StoredMessage | None:
        half = self.halves.recent.half(queue_offset=queue_offset, log_offset=log_offset)
        return half if half is not None else self._store.read(log_offset)

    def half(self, queue_offset: int) -> StoredMessage | None:
        """A pending half as the log has it; None when it cannot be read any more."""
        half = self._half_at(queue_offset, self.halves.pending.log_offset(queue_offset))
        return None if half is None or half.topic != Topic.HALF else half

    def half_or_set_aside(self, queue_offset: int) -> StoredMessage | None:
        """The same for whoever is to end it: one that cannot be read is out of the way then."""
        half = self.half(queue_offset)
        if half is None:
            self.halves.set_aside(queue_offset, "its record cannot be read")
        return half

    def supersede(self, old: int, new: int) -> None:
        """A pending half was stored again: the new one stands for it, and an op record says that
        the old one is done with, without an outcome."""
        self.unsealed.add(self.halves.supersede(old, new))

    def resume(self, source: StoredMessage, now_ms: int) -> Put:
        """Have a discarded message asked about again, from the beginning."""
        half = copy_to(source, Topic.HALF, **{Property.TRANSACTION_CHECK_TIMES: "0"})
        put = self._store.put(half, now_ms)
        if put.log_offset >= 0:
            self.halves.enter(
                half.properties,
                queue_offset=put.queue_offset,
                log_offset=put.log_offset,
                stored_ms=put.stored_ms,
            )
            self.halves.aliases[likeness(half.properties)] = put.queue_offset
        return put
