"""Prepares and ends the transactions of one broker.

The end of a transaction is one group commit: the final record and the op record that names it are
appended in the same input. The answer is sent when both are as durable as a plain send.
"""

from __future__ import annotations

from collections.abc import Mapping

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.fixed_limits import HALF_PROPERTIES_SIZE_MAX
from escrowmq.base.message import Message, Property, StoredMessage, Topic
from escrowmq.base.own_properties import CARRIED
from escrowmq.codec.properties import encode_properties
from escrowmq.store.store import PutResult, PutStatus, Store
from escrowmq.txn.end_claim import EndReply, EndResult
from escrowmq.txn.end_records import AsDelivered, end_records
from escrowmq.txn.half_identity import identity_of_half
from escrowmq.txn.half_lifecycle import Halves
from escrowmq.txn.half_queue_progress import HalfQueueProgress
from escrowmq.txn.half_records import copy_to, make_half
from escrowmq.txn.open_half import OpenHalf
from escrowmq.txn.state import State, Verdict, state_after
from escrowmq.txn.unsealed_ends import UnsealedEnds


class TransactionEngine:
    """Prepares and ends transactions. Pending halves are in `halves`."""

    def __init__(
        self,
        store: Store,
        settings: BrokerSettings,
        *,
        host: bytes,
        as_delivered: AsDelivered,
        before: TransactionEngine | None = None,
    ) -> None:
        """`before` is the engine of the same data folder while the broker was a copy; its halves
        are reused."""
        self._store = store
        self._as_delivered = as_delivered
        if before is None:
            self.halves, self.progress = Halves(store, settings), HalfQueueProgress()
        else:
            self.halves, self.progress = before.halves, before.progress
            self.halves.use_store(store, settings)
        self.unsealed = UnsealedEnds(store, settings, self.halves, self.progress, host=host)

    # -- beginning ---------------------------------------------------------------------------

    def prepare(
        self, message: Message, now_ms: int, *, origin: str, account: str = ""
    ) -> PutResult:
        """Store a message as a half, which is invisible until its transaction is committed."""
        half = make_half(message)
        properties = encode_properties(half.properties)
        if len(half.body) > self._store.settings.body_size_max:
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        if len(properties) > HALF_PROPERTIES_SIZE_MAX:
            return PutResult(PutStatus.PROPERTIES_SIZE_EXCEEDED)
        put = self._store.put(half, now_ms, properties=properties)
        if put.log_offset >= 0:
            self.halves.counters.prepared += 1
            self.halves.recent.add(half, properties, put)
            self.halves.add_half(
                half.properties,
                queue_offset=put.queue_offset,
                log_offset=put.log_offset,
                stored_ms=put.stored_ms,
                origin=origin,
                account=account,
            )
            self.halves.bundles.add_body_size(put.queue_offset, len(half.body))
        return put

    # -- ending ------------------------------------------------------------------------------

    def carry_out_verdict(
        self,
        half: OpenHalf,
        verdict: Verdict,
        *,
        now_ms: int,
        who: str = "",
    ) -> EndReply:
        """Carry out a verdict on a pending transaction: for all its messages or for none."""
        halves, state = self.halves, state_after(State.PENDING, verdict)
        queue_offset = half.queue_offset
        topic = half.message.properties.get(Property.REAL_TOPIC, "")
        if state == State.PENDING:
            return EndReply(EndResult.UNKNOWN, state, queue_offset, topic)
        records = end_records(half, state, halves, now_ms=now_ms, as_delivered=self._as_delivered)
        if records is None:
            return EndReply(EndResult.UNREADABLE, State.PENDING, queue_offset, topic)
        # Check the space for all messages first: one that consumers have seen cannot be undone.
        messages = [record.message for record in records if record.message is not None]
        if len(messages) > 1 and not self._store.has_settling_space(messages):
            put = PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason="no room for all messages")
            return EndReply(EndResult.NOT_STORED, State.PENDING, queue_offset, topic, put)
        ended = EndReply(EndResult.DONE, state, queue_offset, topic, count=len(records))
        for nth, (member, message, encoded) in enumerate(records):
            if message is not None:
                put = self._store.put(message, now_ms, properties=encoded, is_settling=True)
                if put.status is not PutStatus.OK:
                    if nth:  # some are visible already, so the others must be committed too
                        halves.schedule_rest(
                            [each.queue_offset for each in records[nth:]], verdict, now_ms
                        )
                    return EndReply(EndResult.NOT_STORED, State.PENDING, queue_offset, topic, put)
                ended.put = put
            # Its final is in the log; only the op record is missing.
            self.unsealed.ends.append(halves.settle(member, state, now_ms, who))
        return ended

    def complete_partial(self, members: list[int], verdict: Verdict, now_ms: int) -> None:
        """Complete transactions that a crash has left committed, or discarded, only in part.
        `members` are the halves that remain."""
        self.halves.schedule_rest(members, verdict, now_ms)
        for member in members:
            half = self.halves.open_half(member) if member in self.halves.pending else None
            if half is not None:
                self.carry_out_verdict(half, verdict, now_ms=now_ms)

    def mark_ended(self, queue_offset: int, verdict: Verdict, now_ms: int) -> None:
        """Record the end of a half whose final record is already in the log; its op record
        follows."""
        state = state_after(State.PENDING, verdict)
        self.unsealed.ends.append(self.halves.settle(queue_offset, state, now_ms))

    def mark_plain_ended(
        self, ended: Mapping[int, State], now_ms: int, op_offset: int | None = None
    ) -> None:
        """Record the ends of plain halves (txn/plain_halves) whose final records are in the log.
        `op_offset` is the queue offset of their op record, if it exists already."""
        if op_offset is None:
            self.unsealed.ends += self.halves.settle_plain(ended, now_ms)
            return
        if len(ended) == 1:  # this takes half the time
            ((queue_offset, state),) = ended.items()
            self.halves.settle_one_plain(queue_offset, state, now_ms)
        else:
            self.halves.settle_plain(ended, now_ms)
        self.progress.add_op_record(op_offset, ended)

    # -- again -------------------------------------------------------------------------------

    def supersede(self, old: int, new: int) -> None:
        """Let a half's new copy replace it. An op record without an outcome will say that the old
        one is settled."""
        self.unsealed.ends.append(self.halves.supersede(old, new))

    def resume_half(self, source: StoredMessage, now_ms: int) -> PutResult:
        """Store a discarded message as a pending half again, with no checks counted, and with an
        age that counts from now."""
        changed = {Property.TRANSACTION_CHECK_TIMES: "0"}
        place, _, _ = source.properties.get(CARRIED, "").rpartition(":")
        if place:  # it had been carried forward
            changed[CARRIED] = f"{place}:{now_ms}"
        half = copy_to(source, Topic.HALF, **changed)
        put = self._store.put(half, now_ms)
        if put.status is PutStatus.OK:
            self.halves.add_half(
                half.properties,
                queue_offset=put.queue_offset,
                log_offset=put.log_offset,
                stored_ms=put.stored_ms,
            )
            self.halves.note_alias(identity_of_half(half.properties), put.queue_offset)
        return put
