"""Transactions on the wire: halves, ends, checks, and the resumption of discarded ones."""

from __future__ import annotations

import logging
import re
from typing import Final

import msgspec

from escrowmq.base.answer import DONE, HELD, Answer, Refusal, Reply
from escrowmq.base.codes import Flag, Request, Response
from escrowmq.base.command import Command
from escrowmq.base.effects import Replace
from escrowmq.base.extensions import OPEN, ORDER_KEY
from escrowmq.base.limits import PUBLISHED_TOPICS_MAX
from escrowmq.base.message import Message, Property, StoredMessage, SysFlag, Topic
from escrowmq.base.ports import Disk
from escrowmq.broker.asked import Asked, Question
from escrowmq.broker.entry import group_fault
from escrowmq.broker.peer import Peer
from escrowmq.broker.putting import Putter
from escrowmq.broker.state import Broker
from escrowmq.codec.hashes import java_hash
from escrowmq.codec.headers import (
    EndByIdHeader,
    EndTransactionHeader,
    ResumeCheckHeader,
    read_header,
)
from escrowmq.codec.ids import offset_id, parse_offset_id
from escrowmq.codec.record import encode_message
from escrowmq.codec.signed_id import SignedId
from escrowmq.delivery.clients import Channel
from escrowmq.delivery.divert import DelayRules, divert
from escrowmq.delivery.progress import Mark, Marks
from escrowmq.delivery.subscriptions import TRANSACTION_GROUP
from escrowmq.errors import StorageError, UsageError
from escrowmq.store.store import Put, PutStatus
from escrowmq.txn import identity, snapshot
from escrowmq.txn.again import follow
from escrowmq.txn.carry import Carrier
from escrowmq.txn.check import Ask, Checker, Member
from escrowmq.txn.claim import Claim, Ended, EndResult
from escrowmq.txn.engine import Engine
from escrowmq.txn.epoch import attempt_of
from escrowmq.txn.half import is_delayed, real_place
from escrowmq.txn.identity import Keyring
from escrowmq.txn.recovery import Recovery
from escrowmq.txn.resume import Resumption
from escrowmq.txn.state import State, Verdict

_log = logging.getLogger(__name__)

HOUR_MS: Final = 3_600_000
_SETTLED: Final = frozenset({EndResult.DONE, EndResult.REPEATED, EndResult.CONTRADICTED})
_VERDICTS: Final = {8: Verdict.COMMIT, 12: Verdict.ROLLBACK}
_REMARKS: Final = {
    EndResult.NOT_FOUND: "Find prepared transaction message failed",
    EndResult.GROUP_WRONG: "The producer group wrong",
    EndResult.QUEUE_OFFSET_WRONG: "The transaction state table offset wrong",
    EndResult.OF_EPOCH: "this message is of an epoch; request 7709 ends all of it",
    EndResult.UNREADABLE: "a message of the transaction cannot be read; it can be rolled back only",
}
_TOLD: Final = {
    State.COMMITTED: Response.TRANSACTION_SHOULD_COMMIT,
    State.ROLLED_BACK: Response.TRANSACTION_SHOULD_ROLLBACK,
}
"""Codes that the peer has and does not use: the transaction was ended the other way."""

_PICTURE_MS: Final = 30_000
_PICTURE_MIN: Final = 20_000
"""What is pending is kept now and then when so many halves stand behind the oldest."""

_COUNT: Final = re.compile(r"[0-9]{1,9}")


class _Unsealed(msgspec.Struct):
    """An end request whose answer waits for the op record."""

    asked: Question
    ended: Ended


class EndHandlers:
    """END_TRANSACTION (37), RESUME_CHECK_HALF_MESSAGE (323), and the checks (39)."""

    def __init__(self, broker: Broker, putter: Putter) -> None:
        self._broker = broker
        self._putter = putter
        self._rules = DelayRules(broker.store_settings, broker.settings)
        self.engine = Engine(
            broker.store, broker.settings, host=broker.packed, as_delivered=self._as_delivered
        )
        self.keyring = Keyring(
            broker.chance,
            lasting_ms=lambda: broker.store_settings.reserved_hours * HOUR_MS,
            rotation_ms=lambda: broker.settings.key_rotation_hours * HOUR_MS,
        )
        self.checker = Checker(
            self.engine,
            broker.settings,
            age_max_hours=lambda: broker.store_settings.reserved_hours,
            members=self._members,
        )
        self.carrier = Carrier(self.engine, self.checker, broker.store)
        self.resumption = Resumption(self.engine, broker.store)
        self._recovery = Recovery(self.engine, broker.store)
        self._unsealed: list[_Unsealed] = []
        self._marks: Marks[tuple[int, int, bytes]] = Marks()
        self._pictured_ms = 0
        self.picture_ms, self.picture_min = _PICTURE_MS, _PICTURE_MIN
        broker.producer_hooks.append(self._producer_came)

    # -- life --------------------------------------------------------------------------------

    def load(self, disk: Disk, now_ms: int, *, is_sound: bool) -> None:
        """Read what is pending from the store."""
        self.keyring.load(disk.read(identity.PATH))
        offsets = self._broker.offsets
        found = self._recovery.run(
            now_ms,
            half_offset=offsets.get(TRANSACTION_GROUP, Topic.HALF, 0),
            op_offset=offsets.get(TRANSACTION_GROUP, Topic.OP, 0),
            is_sound=is_sound,
            snapshot=snapshot.decode(disk.read(snapshot.PATH)),
        )
        if found.pending_count or found.derived_count:
            _log.info(
                "%d transactions are pending; %d more were ended without an op record",
                found.pending_count,
                found.derived_count,
            )

    def note_progress(self, now_ms: int) -> None:
        """Say in the consumer offsets how far both queues are done with, as the peer does."""
        broker = self._broker
        store = broker.store
        oldest = self.engine.pending.oldest()
        # The queue's own end stays behind while a full disk holds units back.
        half = max(store.bounds(Topic.HALF, 0)[1], self.engine.pending.end)
        if oldest is not None:
            half = oldest
        self.engine.tally.drop_before(half)
        op = self._recovery.progress.op_offset(half)
        picture = self._picture(half, now_ms)
        self._marks.note(Mark(store.end_offset, store.end_offset, (half, op, picture)))
        # The offsets may reach the disk before the ends that they rest on, and outlive them.
        mark = self._marks.take(store.durable_offset)
        if mark is None:
            return
        half, op, picture = mark.state
        if picture:
            broker.effects.append(Replace(snapshot.PATH, picture))
        for topic, offset in ((Topic.HALF, half), (Topic.OP, op)):
            if broker.offsets.get(TRANSACTION_GROUP, topic, 0) != offset:
                broker.offsets.commit(TRANSACTION_GROUP, topic, 0, offset, now_ms)

    def _picture(self, oldest: int, now_ms: int) -> bytes:
        """What is pending, when so much has ended behind the oldest that a start gains by it;
        else empty. With ends that no op record names yet, there is none."""
        pending = self.engine.pending
        behind = pending.end - oldest
        if (
            now_ms < self._pictured_ms + self.picture_ms
            or behind < self.picture_min
            or len(pending) > behind // 2
            or self.engine.has_unsealed
        ):
            return b""
        half_end = self._broker.store.bounds(Topic.HALF, 0)[1]
        if half_end < pending.end:  # units wait for the disk
            return b""
        self._pictured_ms = now_ms
        op_end = self._broker.store.bounds(Topic.OP, 0)[1]
        return snapshot.encode(half_end, op_end, pending.after(-1))

    # -- halves and ends ---------------------------------------------------------------------

    def refusal(self, message: Message, now_ms: int, *, wants_id: bool) -> Refusal | None:
        """Why a message cannot be the half of a transaction; None when it can."""
        if wants_id and self.keyring.is_due(now_ms):
            self.renew_key(now_ms)
        properties = message.properties
        if not properties.get(Property.PGROUP):
            # The peer stores it, and fails later with a NullPointerException at its end.
            remark = "a transactional message needs the property PGROUP, its producer group"
            return Refusal(Response.MESSAGE_ILLEGAL, remark)
        fault = group_fault(properties[Property.PGROUP])
        if fault:
            return Refusal(Response.MESSAGE_ILLEGAL, fault)
        if is_delayed(properties):
            # What could not be delivered at the commit is refused now. Clients mark a half as
            # prepared, and what is prepared is never diverted.
            plain = msgspec.structs.replace(
                message, sys_flag=message.sys_flag & ~SysFlag.TRANSACTION_MASK
            )
            diverted = divert(plain, now_ms, self._rules)
            if not isinstance(diverted, Message):
                return diverted
        reason = self.engine.refusal(message)
        if not reason:
            return None
        if len(self.engine.pending) >= self._broker.settings.pending_max:
            return Refusal(Response.SYSTEM_BUSY, reason)
        is_of_epoch = attempt_of(properties) is not None
        # Of an epoch only one thing can stand in the way: that it is decided.
        code = Response.TRANSACTION_STATE_UNKNOW if is_of_epoch else Response.MESSAGE_ILLEGAL
        return Refusal(code, reason)

    def prepare(self, peer: Peer, message: Message, now_ms: int) -> Put:
        """Store a message that belongs to a transaction."""
        group = message.properties.get(Property.PGROUP, "")
        channel = self._broker.clients.producers.get(group, {}).get(peer.id)
        if channel is not None and len(channel.published) < PUBLISHED_TOPICS_MAX:
            channel.published.add(message.topic)
        origin = channel.client_id if channel else ""
        return self.engine.prepare(message, now_ms, origin=origin, account=peer.counted_for)

    def renew_key(self, now_ms: int) -> int:
        """Sign with a new key from now on, once it is kept; its number. DiskFull, or another
        StorageError, and the old key stays."""
        before = self.keyring.save()
        number = self.keyring.rotate(now_ms)
        try:
            self._broker.store.disk.replace(identity.PATH, self.keyring.save(), is_private=True)
        except StorageError:
            self.keyring.load(before)
            raise
        return number

    def sign(self, place: Put | StoredMessage, unique_key: str, now_ms: int) -> str:
        """The transaction id of a half that stands there."""
        return self.keyring.sign(
            queue_offset=place.queue_offset,
            log_offset=place.log_offset,
            unique_key=unique_key,
            broker_name=self._broker.settings.name,
            now_ms=now_ms,
        )

    def signed_half(self, text: str, now_ms: int) -> tuple[SignedId, StoredMessage | None]:
        """What a transaction id says, and its half if the log holds it still. UsageError when the
        id is not one of this broker's, or has run out."""
        found = self.keyring.read(text, broker_name=self._broker.settings.name, now_ms=now_ms)
        half = self.half_at(found.queue_offset, found.log_offset)
        if (
            half is None
            or half.topic != Topic.HALF
            or not found.is_of(half.properties.get(Property.UNIQ_KEY, ""))
        ):
            return found, None
        return found, half

    def half_at(self, queue_offset: int, log_offset: int) -> StoredMessage | None:
        """What stands at a half's place, or, if it was carried forward, where it stands now."""
        newest = self.engine.carried.get(queue_offset)
        if newest is not None:
            place = Claim(
                log_offset=log_offset, queue_offset=queue_offset, group="", verdict=Verdict.UNKNOWN
            )
            log_offset = follow(place, newest, self._broker.store).log_offset
        return self._broker.store.read(log_offset)

    def _as_delivered(self, final: Message, now_ms: int) -> Message:
        """What is stored for a committed message."""
        key = final.properties.get(ORDER_KEY)
        topic = self._broker.topics.get(final.topic) if key else None
        if key and topic is not None:
            final.queue_id = abs(java_hash(key)) % max(1, topic.write_queue_nums)
        final.queue_id = self._broker.topics.queue_read(final.topic, final.queue_id)
        if is_delayed(final.properties):
            diverted = divert(final, now_ms, self._rules)
            if isinstance(diverted, Message):
                return diverted
            _log.error("a delayed message is delivered at its commit: %s", diverted.remark)
        return final

    def end(self, asked: Asked[None]) -> Reply:
        """Commit or roll back; the answer leaves when the end is durable."""
        header = self.read_end(asked.command, asked.now_ms)
        if isinstance(header, Refusal):
            return header
        claim = Claim(
            log_offset=header.commit_log_offset,
            queue_offset=header.tran_state_table_offset,
            group=header.producer_group,
            verdict=_VERDICTS.get(header.commit_or_rollback, Verdict.UNKNOWN),
            is_from_check=header.from_transaction_check,
            ids=(header.transaction_id or "", header.msg_id),
            count=header.escrow_count,
        )
        ended = self.engine.end(claim, asked.now_ms)
        if header.from_transaction_check:
            self.checker.answered(ended.queue_offset, asked.peer.id)
            if ended.answer is EndResult.UNKNOWN and asked.ext.get(OPEN) == "true":
                self.checker.held_open(ended.queue_offset, asked.peer.id)
        if ended.answer not in _SETTLED and ended.queue_offset >= 0:
            what = "said unknown" if ended.answer is EndResult.UNKNOWN else "refused"
            detail = "" if ended.answer is EndResult.UNKNOWN else ended.answer.name.lower()
            self.engine.trail.note(
                asked.now_ms, ended.queue_offset, what, who=asked.peer.address, detail=detail
            )
        return self.answer(asked, ended)

    def answer(self, asked: Question, ended: Ended) -> Reply:
        """Say how an end went, once that is durable."""
        match ended.answer:
            case EndResult.DONE | EndResult.REPEATED | EndResult.CONTRADICTED:
                # An outcome that is told a second time, or to a second one, is told no earlier.
                if not asked.command.flag & Flag.ONE_WAY:
                    self._unsealed.append(_Unsealed(asked, ended))
                return HELD
            case EndResult.UNKNOWN:
                return HELD  # as at RocketMQ: nothing is done, and nothing is said
            case EndResult.TOO_LATE:
                return Answer(Response.ILLEGAL_OPERATION)
            case EndResult.COUNT_WRONG:
                remark = (
                    f"the broker has {ended.count} messages of this transaction, not as many as "
                    "escrowCount says; nothing was changed"
                )
                return Refusal(Response.SYSTEM_ERROR, remark)
            case EndResult.NOT_STORED:
                assert ended.put is not None
                return self._putter.refusal(ended.put)
            case _:
                return Refusal(Response.SYSTEM_ERROR, _REMARKS[ended.answer])

    def read_end(self, request: Command, now_ms: int) -> EndTransactionHeader | Refusal:
        """Which half an END means, by its offsets or by a signed id."""
        ext = request.ext or {}
        count = ext.get("escrowCount", "0")
        if not _COUNT.fullmatch(count):
            # Optional numbers that are none count as absent, and this one is a safeguard.
            remark = f"escrowCount is {count[:32]!r}; the number of messages is due"
            return Refusal(Response.SYSTEM_ERROR, remark)
        if "escrowId" not in ext:
            return read_header(EndTransactionHeader, request.ext)
        by_id = read_header(EndByIdHeader, request.ext)
        try:
            found, half = self.signed_half(by_id.escrow_id, now_ms)
        except UsageError as error:
            return Refusal(Response.NO_PERMISSION, str(error))
        if half is None:
            return Refusal(Response.SYSTEM_ERROR, _REMARKS[EndResult.NOT_FOUND])
        return EndTransactionHeader(
            producer_group=half.properties.get(Property.PGROUP, ""),
            tran_state_table_offset=found.queue_offset,
            commit_log_offset=found.log_offset,
            commit_or_rollback=by_id.commit_or_rollback,
            from_transaction_check=by_id.from_transaction_check,
            escrow_count=by_id.escrow_count,
        )

    def _told(self, ended: Ended) -> dict[str, str]:
        """What is said beside the code, to those who read it."""
        is_sync = self._broker.store_settings.is_sync_flush
        told = {
            "escrowOutcome": ended.state.name.lower(),
            "escrowDurability": "disk" if is_sync else "memory",
        }
        if ended.count > 1:
            told["escrowCount"] = str(ended.count)
        return told

    def seal(self, now_ms: int) -> None:
        """Append the op records of this input's ends and answer who asked for them."""
        if not self._unsealed and not self.engine.has_unsealed:
            return
        log_end, undone = self.engine.seal(now_ms)
        for op_offset, half_offsets in self.engine.take_sealed():
            self._recovery.progress.note(op_offset, half_offsets)
        unsealed, self._unsealed = self._unsealed, []
        for item in unsealed:
            if item.ended.queue_offset in undone:
                remark = "the end could not be stored; the transaction is pending still"
                reply: Answer | Refusal = Refusal(Response.SERVICE_NOT_AVAILABLE, remark)
            else:
                reply = self._outcome(item.ended, log_end)
            self._broker.answer(item.asked, reply)

    def _outcome(self, ended: Ended, log_end: int) -> Answer:
        """What became of a transaction, to be told as soon as that is durable."""
        state = ended.state
        code, remark = Response.SUCCESS, None
        if ended.answer is EndResult.CONTRADICTED or state in (State.EXPIRED, State.SETTLED):
            code = _TOLD.get(state, Response.TRANSACTION_STATE_UNKNOW)
            remark = f"the transaction is {state.name} already; nothing was changed"
        durable_at = self._putter.durable_at(Put(PutStatus.OK, log_end=log_end))
        return Answer(code, ext=self._told(ended), remark=remark, log_end=durable_at)

    # -- checks ------------------------------------------------------------------------------

    def _members(self, group: str) -> list[Member]:
        channels = self._broker.clients.producers.get(group, {})
        return [
            Member(channel.peer, channel.client_id, channel.published)
            for channel in channels.values()
        ]

    def _producer_came(self, group: str, channel: Channel, now_ms: int) -> None:
        self.checker.producer_came(group, now_ms)

    def lost(self, peer: int) -> None:
        """A connection is gone."""
        self.checker.peer_lost(peer)

    def wake(self, now_ms: int) -> None:
        """Send the checks that are due."""
        if now_ms < self.checker.wake_at_ms():
            return
        for ask in self.checker.due(now_ms):
            self._ask(ask)
        if self.engine.counters.expired:
            self._broker.topics.ensure(Topic.CHECK_MAX_TIME, now_ms=now_ms)

    def wake_at_ms(self) -> int:
        """When a check is due next."""
        return self.checker.wake_at_ms()

    def _ask(self, ask: Ask) -> None:
        half = ask.half
        unique_key = half.properties.get(Property.UNIQ_KEY, "")
        self._broker.tell(
            ask.peer,
            Request.CHECK_TRANSACTION_STATE,
            ext={
                "topic": Topic.HALF,
                "bname": self._broker.settings.name,
                "tranStateTableOffset": str(ask.queue_offset),
                "commitLogOffset": str(half.log_offset),
                "msgId": unique_key,
                "transactionId": unique_key,
                "offsetMsgId": offset_id(half.store_host, half.log_offset),
            },
            body=encode_message(_as_asked(half, ask.count)),
        )

    def resume(self, asked: Asked[ResumeCheckHeader]) -> Reply:
        """Ask again about a message that was given up."""
        header = asked.header
        _, log_offset = parse_offset_id(header.msg_id)
        source = self._broker.store.read(log_offset)
        if source is None or source.topic not in (Topic.CHECK_MAX_TIME, Topic.HALF):
            remark = f"no message that was given up has the offset id {header.msg_id}"
            return Refusal(Response.SYSTEM_ERROR, remark)
        # The peer begins an ended one again, which ends in a second final message.
        state = self.resumption.state_of(source)
        if state == State.PENDING:
            return DONE
        if state != State.EXPIRED:
            remark = f"the transaction of {header.msg_id} is {state.name}; nothing was changed"
            return Refusal(Response.SYSTEM_ERROR, remark)
        resumed = self.resumption.resume(source, asked.now_ms)
        if resumed.refusal or resumed.put is not None:
            remark = resumed.refusal or f"Put message back to {Topic.HALF} failed."
            return Refusal(Response.SYSTEM_ERROR, remark)
        return DONE


def _as_asked(half: StoredMessage, count: int) -> StoredMessage:
    """The half as the producer is shown it: under its own topic, with the number of the check."""
    topic, queue_id = real_place(half) or ("", 0)
    properties = {
        **half.properties,
        Property.TRANSACTION_CHECK_TIMES: str(count),
        Property.WAIT: "false",
    }
    return msgspec.structs.replace(half, topic=topic, queue_id=queue_id, properties=properties)
