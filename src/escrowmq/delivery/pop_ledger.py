"""Pop consumption: which messages are in flight with which group, until when, and which are
redelivered.

The records of the revive topic are authoritative; `Popped` is their content in memory. A pop stores
its check point before it is answered. Acks change memory at once. At the end of an input, before
the replies leave, they are stored together, one record per check point. Redelivered messages are
acknowledged in the same way, so that a start after a kill repeats nothing.

For each revive queue, consumerOffset.json has the offsets of two groups of the broker's own. The
first says up to where no record is open: a start reads from there, and so does RocketMQ's reviver.
The second says which pops the file already includes: at the next start, later check points advance
the consumers' offsets. The file must not be written before the log is durable up to `log_end`.
Otherwise a power failure could leave offsets without their check points.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.log_throttle import RepeatedErrors
from escrowmq.delivery.groups import GroupTable
from escrowmq.delivery.offsets import OffsetTable
from escrowmq.delivery.pop_auto_renewal import (
    NOBODY,
    IsConnected,
    never_renewed,
    renewed_invisible_ms,
)
from escrowmq.delivery.pop_carrier import CheckPointCarrier
from escrowmq.delivery.pop_check_points import (
    NEVER_MS,
    CheckPoint,
    CheckPoints,
    PoppedQueue,
)
from escrowmq.delivery.pop_counts import PopCounts
from escrowmq.delivery.pop_quotas import PopQuotas
from escrowmq.delivery.pop_redelivery import Redelivery
from escrowmq.delivery.pops_of_rocketmq import PopsOfRocketMQ
from escrowmq.delivery.revive_reader import GRACE_MS, ReviveReader
from escrowmq.delivery.revive_records import (
    CHECK_POINT_TAG,
    MARK_GROUP,
    NEXT_PROPERTY,
    ORDER_TAG,
    RESET_TAG,
    REVIVE_GROUP,
    CheckPointKey,
    OrderBody,
    ResetBody,
    encode_ack,
    encode_check_point,
    former_revive_topics,
    revive_queue,
    revive_record,
    revive_topic,
)
from escrowmq.delivery.topics import TopicTable
from escrowmq.store.store import Arrival, PutResult, PutStatus, Store

DUE_MAX: Final = 256
"""The most check points that are handled in one turn; others follow in later turns."""

RETRY_MS: Final = 1_000

_log = logging.getLogger(__name__)


class PopLedger:
    """All messages in flight with groups that pop."""

    def __init__(  # noqa: PLR0913 - what it works on
        self,
        store: Store,
        settings: BrokerSettings,
        *,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        host: bytes,
        rocketmq: PopsOfRocketMQ,
        is_there: IsConnected = never_renewed,
    ) -> None:
        self._store = store
        self._settings = settings
        self._offsets = offsets
        self._host = host
        self.popped = CheckPoints()
        self.quotas = PopQuotas(self.popped)
        self._reader = ReviveReader(store, offsets, self.popped)
        self._unstored = RepeatedErrors()
        self._redelivery = Redelivery(
            store,
            settings,
            topics=topics,
            groups=groups,
            offsets=offsets,
            host=host,
            read=self._reader.read_record,
            popped=self.popped,
            came_again=self._note_redelivered,
        )
        self._carrier = CheckPointCarrier(self.popped, self._store_again)
        self._rocketmq = rocketmq
        self.topic = revive_topic(settings.cluster)
        self.log_end = 0
        """Everything stored here is durable once the log is durable up to this offset."""

        self.counts = PopCounts(redelivered=self._redelivery.counts)
        self._acks: dict[CheckPoint, list[int]] = {}
        self._orders: dict[tuple[str, str, int], int] = {}
        self._finished_of_deleted: dict[CheckPoint, list[int]] = {}
        """Acknowledged messages of deleted topics and groups, by check point. `flush` stores them
        like `_acks`, without figures."""
        self.unstored = (
            self._acks,
            self._finished_of_deleted,
            self._orders,
        )  # what `flush` has to store
        self._own: set[tuple[int, int]] = set()
        self._retry_ms = 0
        self._is_there = is_there

    @property
    def dropped_count(self) -> int:
        """The number of skipped records, and of messages that could not be redelivered."""
        return self._reader.dropped_count + self._redelivery.dropped_count

    # -- life ------------------------------------------------------------------------------------

    def load(self, now_ms: int, *, is_sound: bool) -> None:
        """Read the records that may be open, and advance offsets that were not saved. If the log
        has holes (not `is_sound`), no offset advances past messages whose check point may be
        lost."""
        self._rocketmq.start(now_ms)
        if not is_sound:
            self._reader.note_holes()
        former = former_revive_topics(self._store.topics(), self.topic)
        for topic in former:
            self._reader.read_all(topic, now_ms)
        points = self.popped.finish_deleted(lambda _: True)
        self._reader.read_all(self.topic, now_ms)
        if self._move_check_points(points, former, now_ms):
            for topic in former:
                self._commit_progress(topic, {}, now_ms)

    def _move_check_points(
        self, points: list[tuple[CheckPoint, list[int]]], former: list[str], now_ms: int
    ) -> bool:
        """Record check points from former revive topics in the present topic: the cluster had
        another name. Skip those that an earlier start has recorded. Return whether all could be
        recorded."""
        failed_count = 0
        for point, queue_offsets in points:
            handle, track = point.identity(), point.track
            failed_count += self.popped.find(handle) is None and not self.record_pop(
                handle,
                queue_offsets,
                invisible_ms=track.span_ms - track.grace_ms,
                next_offset=None,
                now_ms=now_ms,
            )
        if failed_count:
            _log.error(
                "%d of %d records of popped messages in %s cannot be taken over: these messages "
                "are redelivered after another start",
                failed_count, len(points), ", ".join(former),
            )  # fmt: skip
        elif points:
            _log.info(
                "%d records of popped messages are taken over from %s",
                len(points), ", ".join(former),
            )  # fmt: skip
        return not failed_count

    def apply_arrival(self, arrival: Arrival, now_ms: int) -> None:
        """Apply a record that became visible in the revive topic: RocketMQ's timer may have stored
        it."""
        key = (arrival.queue_id, arrival.queue_offset)
        if key in self._own:  # applied when it was stored
            self._own.discard(key)
            return
        record = self._reader.read_record(arrival.log_offset, arrival.record_size)
        if record is not None:
            self._reader.apply_record(record, arrival.queue_offset, now_ms, moves_offsets=False)

    # -- handing out -----------------------------------------------------------------------------

    def revive_queue(self, invisible_ms: int) -> int:
        """Return the revive queue for a pop with this invisible time."""
        return revive_queue(invisible_ms, self._settings.revive_queues_count)

    def record_pop(
        self,
        handle: CheckPointKey,
        queue_offsets: Sequence[int],
        *,
        invisible_ms: int,
        next_offset: int | None,
        now_ms: int,
        holder: int = NOBODY,
        is_instead: bool = False,
    ) -> bool:
        """Record popped messages, and the group's next offset if it changed. Return False if that
        failed: then the messages must not be delivered. `is_instead`: another check point of the
        group will be finished for this one."""
        has_room = is_instead or self.quotas.may_pop_more(handle.group, now_ms)
        if not has_room or self.popped.find(handle) is not None:
            return False
        body = encode_check_point(
            handle, queue_offsets, invisible_ms=invisible_ms, broker_name=self._settings.name
        )
        # Stored first, then remembered, and only then do clients get the messages: the offset moves
        # past them, so that after a crash only this record leads to their redelivery.
        put = self._put(CHECK_POINT_TAG, body, handle.revive_queue, now_ms, next_offset=next_offset)
        self.counts.stored.add(handle.group, handle.topic, "CK", put.status.name)
        if put.status is not PutStatus.OK:
            return False
        self.popped.add(
            handle,
            queue_offsets,
            invisible_ms=invisible_ms,
            revive_offset=put.queue_offset,
            grace_ms=GRACE_MS - self.popped.ahead_ms(handle.pop_ms, now_ms),
            holder=holder,
        )
        return True

    def _renew(self, point: CheckPoint, now_ms: int) -> bool:
        """Renew a check point if its holder is connected. Its receipts stay valid."""
        if not self._is_there(point.holder):
            return False
        handle, offsets = point.identity(), point.open_offsets()
        leapt_ms = max(0, point.track.grace_ms - GRACE_MS)  # what a clock that was set forward adds
        invisible_ms = renewed_invisible_ms(point.pop_ms + leapt_ms, now_ms)
        if not invisible_ms:
            return False
        revive_offset = self._store_again(point, now_ms, invisible_ms)
        if revive_offset is None:
            return False
        self.popped.add(  # replaces the previous one
            handle,
            offsets,
            invisible_ms=invisible_ms,
            revive_offset=revive_offset,
            grace_ms=GRACE_MS + leapt_ms,
            holder=point.holder,
        )
        return True

    def _store_again(
        self, point: CheckPoint, now_ms: int, invisible_ms: int | None = None
    ) -> int | None:
        """Store another record of a check point, which replaces the previous one. Return its offset
        in the revive queue; None if that failed."""
        handle, track = point.identity(), point.track
        if invisible_ms is None:
            invisible_ms = track.span_ms - track.grace_ms
        body = encode_check_point(
            handle, point.open_offsets(), invisible_ms=invisible_ms, broker_name=self._settings.name
        )
        put = self._put(CHECK_POINT_TAG, body, handle.revive_queue, now_ms)
        self.counts.stored.add(handle.group, handle.topic, "CK", put.status.name)
        return put.queue_offset if put.status is PutStatus.OK else None

    def _put(
        self,
        tag: str,
        body: bytes,
        queue_id: int,
        now_ms: int,
        *,
        next_offset: int | None = None,
        is_settling: bool = False,
    ) -> PutResult:
        message = revive_record(self.topic, tag, body, queue_id, deliver_ms=now_ms, host=self._host)
        if next_offset is not None:
            message.properties[NEXT_PROPERTY] = str(next_offset)
        put = self._store.put(message, now_ms, is_settling=is_settling)
        if put.status is PutStatus.OK:
            self._own.add((queue_id, put.queue_offset))
            self.log_end = put.log_end
        elif (end := self._unstored.suppressed_note(tag, now_ms)) is not None:
            _log.warning("no %s record was stored: %s%s", tag, put.reason or put.status.value, end)
        return put

    # -- acks ------------------------------------------------------------------------------------

    def acknowledge(
        self, handle: CheckPointKey, queue_offsets: list[int], *, invisible_ms: int, now_ms: int
    ) -> None:
        """Acknowledge messages in memory. The next `flush` stores this."""
        point = self.popped.find(handle)
        if point is not None:
            news = self.popped.acknowledge(point, queue_offsets)
            if news:
                self._acks.setdefault(point, []).extend(news)
        elif self._rocketmq.may_include(handle, invisible_ms, now_ms):
            self._rocketmq.store_ack(handle, queue_offsets, invisible_ms, now_ms)
            self.log_end = self._store.end_offset

    def forget_group(self, group: str) -> None:
        """Finish the check points of a deleted group, so that nothing is redelivered to it."""
        self._finish_deleted(lambda line: line.group == group)
        self.counts.forget_group(group)

    def forget_topic(self, topic: str) -> None:
        """Finish the check points of a deleted topic, so that none of its messages is
        redelivered."""
        self._finish_deleted(lambda line: line.topic == topic)
        self.counts.forget_topic(topic)

    def _finish_deleted(self, is_gone: Callable[[PoppedQueue], bool]) -> None:
        for point, offsets in self.popped.finish_deleted(is_gone):
            self._finished_of_deleted[point] = [*self._acks.pop(point, ()), *offsets]

    def group_offset(self, queue: tuple[str, str, int]) -> int:
        """Return the offset of a group in a queue of a topic; -1 if it has none."""
        return self._offsets.get(*queue)

    def advance_orderly(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set the next offset of an orderly group in a queue: it has finished all messages before
        it. The next `flush` stores this."""
        self._orders[group, topic, queue_id] = offset

    def store_reset(
        self, group: str, topic: str, offsets: dict[int, int], now_ms: int
    ) -> PutResult:
        """Store offsets that an operator sets, so that a start knows them if their file is older.
        `offsets` are by queue."""
        body = msgspec.json.encode(ResetBody(c=group, o=offsets, t=topic))
        return self._put(RESET_TAG, body, 0, now_ms)

    def flush(self, now_ms: int) -> None:
        """Store the acks and orderly offsets of this input."""
        acks, given_up, orders = (
            self._acks.copy(),
            self._finished_of_deleted.copy(),
            self._orders.copy(),
        )
        self._acks.clear()
        self._finished_of_deleted.clear()
        self._orders.clear()
        for point, offsets in acks.items():
            put = self._put_ack(point, offsets, now_ms)
            self.counts.stored.add(point.line.group, point.line.topic, "ACK", put.status.name)
        for point, offsets in given_up.items():
            self._put_ack(point, offsets, now_ms)
        for (group, topic, queue_id), offset in orders.items():
            body = msgspec.json.encode(OrderBody(c=group, o=offset, q=queue_id, t=topic))
            self._put(ORDER_TAG, body, 0, now_ms, is_settling=True)

    def _put_ack(self, point: CheckPoint, offsets: list[int], now_ms: int) -> PutResult:
        tag, body = encode_ack(point.identity(), offsets, broker_name=self._settings.name)
        return self._put(tag, body, point.track.revive_queue, now_ms, is_settling=True)

    def change_invisible_time(
        self,
        handle: CheckPointKey,
        queue_offset: int,
        *,
        old_ms: int,
        invisible_ms: int,
        now_ms: int,
    ) -> int | None:
        """Set a new invisible time of a message, counted from now. Return the pop time of its new
        check point; None if that could not be stored. An acknowledged message is not changed."""
        point = self.popped.find(handle)
        if point is None:
            if not self._rocketmq.may_include(handle, old_ms, now_ms):
                return now_ms
        elif point.acked & point.bit_of(queue_offset) or not point.bit_of(queue_offset):
            return now_ms
        # Check points of a message must differ, even within one millisecond.
        new = handle._replace(
            start_offset=queue_offset,
            pop_ms=max(now_ms, handle.pop_ms + 1),
            revive_queue=self.revive_queue(invisible_ms),
        )
        while self.popped.find(new) is not None:  # another client has just popped it
            new = new._replace(pop_ms=new.pop_ms + 1)
        is_new = self.record_pop(  # first: a crash in between repeats the message and loses none
            new,
            [queue_offset],
            invisible_ms=invisible_ms,
            next_offset=None,
            now_ms=now_ms,
            is_instead=point is not None and point.count == 1,
        )
        if not is_new:
            return None
        self.acknowledge(handle, [queue_offset], invisible_ms=old_ms, now_ms=now_ms)
        return new.pop_ms

    # -- what is due -----------------------------------------------------------------------------

    def wake_at_ms(self) -> int:
        """The time to call `wake` next."""
        if self._carrier.is_under_way:
            return 0
        at_ms = self.popped.wake_at_ms()
        return at_ms if at_ms == NEVER_MS else max(at_ms, self._retry_ms)

    def wake(self, now_ms: int) -> None:
        """Redeliver due messages, and store old check points again, a bounded number of each."""
        if self._carrier.is_under_way:
            self._carrier.carry(now_ms)
        if now_ms >= self.popped.wake_at_ms():
            self.redeliver_due(now_ms)

    def redeliver_due(self, now_ms: int) -> int:
        """Redeliver messages that were not acknowledged in time. Return how many check points were
        finished."""
        if now_ms < self._retry_ms:
            return 0
        if self._rocketmq.may_have_acks_late(now_ms):
            self._retry_ms = now_ms + RETRY_MS
            return 0
        try:
            for settled in range(DUE_MAX):
                point = self.popped.next_due(now_ms)
                if point is None:
                    return settled
                if self._renew(point, now_ms):
                    continue
                if not self._redelivery.redeliver(point, now_ms):
                    self._retry_ms = now_ms + RETRY_MS
                    return settled
            return DUE_MAX
        finally:  # also when something fails in the middle
            self.flush(now_ms)

    def _note_redelivered(self, point: CheckPoint, queue_offset: int) -> None:
        self.log_end = self._store.end_offset
        self.popped.acknowledge(point, [queue_offset])
        self._acks.setdefault(point, []).append(queue_offset)

    # -- progress --------------------------------------------------------------------------------

    def note_progress(self, now_ms: int) -> None:
        """Update the revive queues' offsets, before all offsets are saved."""
        assert not self._acks, "acks are flushed at the end of each input"
        self._commit_progress(self.topic, self.popped.oldest_records(), now_ms)

    def begin_carrying(self) -> None:
        """Begin to store old check points again, if too many records follow them."""
        bounds, topic = self._store.bounds, self.topic
        self._carrier.begin_round(
            {each: bounds(topic, each)[1] for each in self._store.queues_of(topic)}
        )

    def _commit_progress(self, topic: str, oldest: dict[int, int], now_ms: int) -> None:
        for queue_id in self._store.queues_of(topic):
            end = self._store.bounds(topic, queue_id)[1]
            done = min(oldest.get(queue_id, end), end) - 1
            for group, offset in ((REVIVE_GROUP, done), (MARK_GROUP, end)):
                if offset != self._offsets.get(group, topic, queue_id):
                    self._offsets.commit(group, topic, queue_id, offset, now_ms)
