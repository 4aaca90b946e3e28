"""Reads the messages for a pop, and records that the group has them in flight."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from escrowmq.base.answer import Refusal
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import FAQ, Response
from escrowmq.base.fixed_limits import TOPIC_SIZE_MAX_LONG
from escrowmq.base.message import Property
from escrowmq.base.own_properties import RENEW
from escrowmq.base.ports import RandomSource
from escrowmq.base.store_settings import StoreSettings
from escrowmq.broker.incoming_request import IncomingRequest
from escrowmq.broker.reads.message_selection import EVERYTHING, Selector
from escrowmq.codec.headers import PopHeader
from escrowmq.codec.pop_receipt import (
    ORDER_QUEUE,
    RETRY_V2,
    PopReceipt,
    encode_order_counts,
    encode_receipt,
    retry_kind,
    retry_topic,
)
from escrowmq.codec.record import decode_records, encode_message
from escrowmq.delivery.groups import GroupTable
from escrowmq.delivery.offsets import OffsetTable
from escrowmq.delivery.orderly_pops import OrderlyBatches
from escrowmq.delivery.own_progress import is_own_progress
from escrowmq.delivery.pop_auto_renewal import NOBODY
from escrowmq.delivery.pop_ledger import PopLedger
from escrowmq.delivery.retry_topics import RetryTopics
from escrowmq.delivery.revive_records import CheckPointKey
from escrowmq.delivery.topics import Perm, TopicTable
from escrowmq.errors import StorageError
from escrowmq.store.store import GetResult, GetStatus, Store

_log = logging.getLogger(__name__)

INIT_MIN: Final = 0
FILTER_ROUNDS_MAX: Final = 4
"""The most reads that a pop makes in one turn while its filter matches nothing."""

_MISPLACED: Final = frozenset(
    {GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.OFFSET_FOUND_NULL}
)
_PASSED_OVER: Final = frozenset(
    {GetStatus.NO_MATCHED_MESSAGE, GetStatus.OFFSET_FOUND_NULL, GetStatus.MESSAGE_WAS_REMOVING}
)
_PERCENT: Final = 100


class Pop(msgspec.Struct):
    """A pop that was accepted, with its selector. It may wait for messages."""

    request: IncomingRequest[PopHeader]
    selector: Selector = EVERYTHING
    born_ms: int = 0

    @property
    def header(self) -> PopHeader:
        """The request's fields."""
        return self.request.header

    @property
    def holding_client(self) -> int:
        """The client whose messages stay invisible for as long as it is connected; NOBODY if it did
        not ask for that."""
        return self.request.peer.id if self.request.ext.get(RENEW) == "true" else NOBODY


class PopResult(msgspec.Struct):
    """The messages that one pop has collected."""

    pop_ms: int
    chunks: list[bytes] = []
    count: int = 0
    size: int = 0
    rest: int = 0
    starts: list[tuple[int, int, int]] = []
    offsets: list[tuple[int, int, Sequence[int]]] = []
    counts: list[str] = []
    tested_count: int = 0
    """The number of records that a filter tested."""

    has_skipped: bool = False
    """Whether the filter skipped messages, and more messages are still unread."""

    revive_queue: int = 0


class QueuePopper:
    """Takes messages out of queues for the pops of groups."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store_settings: StoreSettings,
        store: Store,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        chance: RandomSource,
        ledger: PopLedger,
        orders: OrderlyBatches,
    ) -> None:
        self._settings = settings
        self._store_settings = store_settings
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._chance = chance
        self._ledger = ledger
        self._orders = orders
        self._retries = RetryTopics(topics, groups, offsets)
        self._failing: set[tuple[str, int]] = set()
        """Queues whose last read failed. A failure is logged only for a queue that is not in this
        set."""

    # -- who may read here -----------------------------------------------------------------------

    def broker_refusal(self, what: str) -> Refusal | None:
        """Return why no messages of this broker may be read; None if they may."""
        if not self._settings.permission & Perm.READ:
            host = self._settings.advertised_host
            return Refusal(
                Response.NO_PERMISSION, f"the broker[{host}] {what} message is forbidden"
            )
        return None

    def group_refusal(self, request: IncomingRequest[PopHeader], now_ms: int) -> Refusal | None:
        """Return why a group may not pop from a topic; None if it may."""
        header = request.header
        topic = self._topics.get(header.topic)
        if topic is None:
            remark = f"topic[{header.topic}] not exist, apply first please! {FAQ}"
            return Refusal(Response.TOPIC_NOT_EXIST, remark)
        if not topic.perm & Perm.READ:
            remark = f"the topic[{header.topic}] peeking message is forbidden"
            return Refusal(Response.NO_PERMISSION, remark)
        if header.queue_id >= topic.read_queue_nums:
            remark = (
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] "
                f"consumer:[{request.peer.address}]"
            )
            return Refusal(Response.INVALID_PARAMETER, remark)
        name = header.consumer_group
        size = len(retry_topic(header.topic, name, RETRY_V2))
        if size > TOPIC_SIZE_MAX_LONG and not header.order:
            remark = (
                f"the topic for what the group does not acknowledge would have a name of {size} "
                f"characters, {TOPIC_SIZE_MAX_LONG} are allowed; choose a shorter name of the group"
            )
            return Refusal(Response.INVALID_PARAMETER, remark)
        if is_own_progress(name, header.topic):
            return Refusal(Response.NO_PERMISSION, f"subscription group no permission, {name}")
        group = self._groups.get_or_create(name, now_ms)
        if group is None:
            remark = f"subscription group [{name}] does not exist, {FAQ}"
            return Refusal(Response.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            return Refusal(Response.NO_PERMISSION, f"subscription group no permission, {name}")
        return self._newcomer_refusal(header, now_ms)

    def _newcomer_refusal(self, header: PopHeader, now_ms: int) -> Refusal | None:
        """Return why a group that is new to a topic may not pop from it, because too many offsets
        are kept, or there are too many topics; None if it may."""
        offsets, group = self._offsets, header.consumer_group
        fault = self._topics.retry_topic_fault(self._groups.made.account_of(group))
        if not (offsets.quotas.is_crowded or fault) or offsets.offsets_of(group, header.topic):
            return None
        if offsets.quotas.is_crowded and (why := offsets.quotas.why_not(group, now_ms)):
            remark = f"the progress of {group} is not kept: {why}"
            return Refusal(Response.SYSTEM_ERROR, remark)
        if not fault or header.order or any(map(self._topics.get, self.retry_topics(header))):
            return None
        remark = f"no retry topic for what {group} does not acknowledge: {fault}"
        return Refusal(Response.SYSTEM_ERROR, remark)

    # -- what there is ---------------------------------------------------------------------------

    def retry_topics(self, header: PopHeader) -> list[str]:
        """Return the retry topics of the request's group for its topic."""
        is_v2 = self._settings.has_retry_topic_v2
        return self._retries.topics_to_read(header.topic, header.consumer_group, is_v2=is_v2)

    def next_offset(
        self, group: str, topic: str, queue_id: int, init_mode: int, now_ms: int, *, commits: bool
    ) -> int:
        """Return the offset from which a group continues in a queue. With `commits`, commit it if
        the group had none."""
        offset = self._offsets.get(group, topic, queue_id)
        if offset >= 0:
            return offset
        low, high = self._store.bounds(topic, queue_id)
        if (
            init_mode == INIT_MIN
            or retry_kind(topic)
            or self._starts_at_oldest(topic, queue_id, low)
        ):
            offset = low
        else:
            offset = max(0, high - 1)
        if commits:
            self._offsets.commit(group, topic, queue_id, offset, now_ms)
        return offset

    def _starts_at_oldest(self, topic: str, queue_id: int, low: int) -> bool:
        """Whether a new group starts at a queue's oldest message although it asked for the newest:
        if the queue is so young that its messages are still in memory."""
        if low > 0 or not self._settings.pop_init_in_memory:
            return False
        entries = self._store.read_units(topic, queue_id, 0, 1)
        settings = self._store_settings
        recent_size = settings.memory_size * settings.memory_percent // _PERCENT
        return not entries or self._store.end_offset - entries[0][0] <= recent_size

    def has_message(self, header: PopHeader, now_ms: int) -> bool:
        """Whether a pop would find messages, regardless of its filter."""
        group = header.consumer_group
        for topic, queue_ids in self._reading_order(header, self._chance.randrange(_PERCENT)):
            for queue_id in queue_ids:
                if header.order and self._orders.is_blocked(
                    (group, topic, queue_id),
                    attempt_id=header.attempt_id,
                    invisible_ms=0,
                    now_ms=now_ms,
                ):
                    continue
                offset = self.next_offset(group, topic, queue_id, INIT_MIN, now_ms, commits=False)
                if self._store.bounds(topic, queue_id)[1] > offset:
                    return True
        return False

    def take_messages(self, pop: Pop, now_ms: int) -> PopResult:
        """Take available messages for a pop. If its filter skips all of them, read a few more
        times. An unreadable queue counts as empty, unless all are unreadable: messages of another
        queue may be in flight for this pop already."""
        header = pop.header
        revive_queue = self._ledger.revive_queue(header.invisible_time)
        finds = PopResult(now_ms, revive_queue=ORDER_QUEUE if header.order else revive_queue)
        for _ in range(FILTER_ROUNDS_MAX):
            finds.rest, finds.has_skipped = 0, False
            chance = self._chance.randrange(_PERCENT)
            failures: list[Exception] = []
            places = [(topic, i) for topic, ids in self._reading_order(header, chance) for i in ids]
            for topic, queue_id in places:
                try:
                    self._take_from_queue(finds, pop, topic, queue_id, now_ms)
                except (OSError, StorageError) as error:
                    failures.append(error)
                    self._log_unreadable(topic, queue_id, error)
                else:
                    self._failing.discard((topic, queue_id))
            if failures and len(failures) == len(places):
                raise failures[0]
            if finds.count or not finds.has_skipped:
                break
        return finds

    def _log_unreadable(self, topic: str, queue_id: int, error: Exception) -> None:
        if (topic, queue_id) not in self._failing:
            self._failing.add((topic, queue_id))
            _log.error("nothing can be popped from %s/%d: %s", topic, queue_id, error)

    def peek(self, header: PopHeader, now_ms: int) -> PopResult:
        """Return the messages that a pop would get, without taking them."""
        store = self._store
        finds = PopResult(now_ms)
        group = header.consumer_group
        for topic, queue_ids in self._reading_order(header, self._chance.randrange(_PERCENT)):
            for queue_id in queue_ids:
                offset = self.next_offset(group, topic, queue_id, INIT_MIN, now_ms, commits=False)
                finds.rest += max(0, store.bounds(topic, queue_id)[1] - offset)
                left = header.max_msg_nums - finds.count
                if left <= 0 or finds.size >= self._size_max:
                    continue
                got = store.get(topic, queue_id, offset, count_max=left)
                if got.status in _MISPLACED:
                    got = store.get(topic, queue_id, got.next_offset, count_max=left)
                if got.count:
                    self._add_messages(finds, got, got.chunks)
        return finds

    # -- one queue after another -----------------------------------------------------------------

    @property
    def _size_max(self) -> int:
        return self._store_settings.read_size_max

    def _reading_order(self, header: PopHeader, chance: int) -> list[tuple[str, list[int]]]:
        """Return topics and queues in the order in which to read them. With a configured
        probability the retry topics come first, so that a busy topic does not starve them."""
        topics = self._topics
        again: list[tuple[str, list[int]]] = []
        if not header.order:
            for name in self.retry_topics(header):
                retry = topics.get(name)
                if retry is not None:
                    again.append((name, _rotated_indexes(retry.read_queue_nums, chance)))
        topic = topics.get(header.topic)
        queue_ids = [header.queue_id]
        if header.queue_id < 0:
            queue_ids = _rotated_indexes(topic.read_queue_nums, chance) if topic is not None else []
        plain = [(header.topic, queue_ids)]
        is_again_first = chance < self._settings.pop_retry_first_percent
        return again + plain if is_again_first else plain + again

    def _take_from_queue(
        self, finds: PopResult, pop: Pop, topic: str, queue_id: int, now_ms: int
    ) -> None:
        header, selector = pop.header, pop.selector
        store, offsets, group = self._store, self._offsets, header.consumer_group
        left = header.max_msg_nums - finds.count
        size_left = self._size_max - finds.size
        has_room = left > 0 and size_left > 0 and self._may_pop_more(pop, now_ms)
        tests_left = selector.tested_max - finds.tested_count
        has_tests = not selector.tested_max or tests_left > 0
        # A reset is applied only when the queue is read: the new batch then invalidates late
        # acknowledgements.
        if has_room and has_tests and offsets.take_reset(group, topic, queue_id) is not None:
            self._orders.drop_batch((group, topic, queue_id))
        offset = self.next_offset(group, topic, queue_id, header.init_mode, now_ms, commits=True)
        if header.order and self._orders.is_blocked(
            (group, topic, queue_id),
            attempt_id=header.attempt_id,
            invisible_ms=header.invisible_time,
            now_ms=now_ms,
        ):
            return  # messages after it do not count as the rest: they are unavailable
        if not has_room:
            finds.rest += max(0, store.bounds(topic, queue_id)[1] - offset)
            return
        if not has_tests:
            unread = max(0, store.bounds(topic, queue_id)[1] - offset)
            finds.rest += unread
            finds.has_skipped |= unread > 0
            return
        for _ in range(2):
            got = store.get(
                topic,
                queue_id,
                offset,
                count_max=left,
                size_max=size_left,
                codes=selector.codes,
                accept=selector.accept,
                tested_max=tests_left if selector.tested_max else 0,
            )
            if got.status not in _MISPLACED:
                finds.tested_count += max(0, got.next_offset - offset)
                break
            offset = got.next_offset
            offsets.commit(group, topic, queue_id, offset, now_ms)
        if got.count:
            if not self._record_in_flight(finds, pop, topic, queue_id, offset, got):
                finds.rest += got.count
                return
        elif got.status in _PASSED_OVER:
            offsets.commit(group, topic, queue_id, got.next_offset, now_ms)
            finds.has_skipped |= got.max_offset > got.next_offset
        finds.rest += max(0, got.max_offset - got.next_offset)

    def _may_pop_more(self, pop: Pop, now_ms: int) -> bool:
        """Whether the group of a pop may have more messages in flight."""
        quotas, group = self._ledger.quotas, pop.header.consumer_group
        account = pop.request.peer.counted_for
        if account:
            quotas.note_popper(account, group)
        return quotas.may_pop_more(group, now_ms, account)

    def _record_in_flight(
        self, finds: PopResult, pop: Pop, topic: str, queue_id: int, offset: int, got: GetResult
    ) -> bool:
        """Record that the group has these messages in flight, and add them to the result. Return
        False if too many are in flight.

        The arguments are positional, for speed: they are the local variables of `_take_from_queue`.
        """
        header, now_ms = pop.header, finds.pop_ms
        group, kind = header.consumer_group, retry_kind(topic)
        if header.order:
            counts, count_min = self._orders.record_pop(
                (group, topic, queue_id),
                got.queue_offsets,
                attempt_id=header.attempt_id,
                invisible_ms=header.invisible_time,
                now_ms=now_ms,
                holder=pop.holding_client,
            )
            finds.counts.append(encode_order_counts(kind, queue_id, counts, count_min))
            next_offset = offset
        else:
            handle = CheckPointKey(group, topic, queue_id, offset, now_ms, finds.revive_queue)
            next_offset = got.next_offset
            if not self._ledger.record_pop(
                handle,
                got.queue_offsets,
                invisible_ms=header.invisible_time,
                next_offset=next_offset,
                now_ms=now_ms,
                holder=pop.holding_client,
            ):
                return False
        self._offsets.commit(group, topic, queue_id, next_offset, now_ms)
        finds.starts.append((kind, queue_id, offset))
        finds.offsets.append((kind, queue_id, got.queue_offsets))
        chunks = got.chunks
        if kind:
            receipt = PopReceipt(
                start_offset=offset,
                pop_ms=now_ms,
                invisible_ms=header.invisible_time,
                revive_queue=finds.revive_queue,
                kind=kind,
                broker_name=self._settings.name,
                queue_id=queue_id,
            )
            chunks = _with_original_topic(chunks, header.topic, receipt)
        self._add_messages(finds, got, chunks)
        return True

    def _add_messages(self, finds: PopResult, got: GetResult, chunks: list[bytes]) -> None:
        finds.chunks.extend(chunks)
        finds.count += got.count
        finds.size += sum(map(len, chunks))


def _rotated_indexes(count: int, start: int) -> list[int]:
    return [(start + index) % count for index in range(count)]


def _with_original_topic(chunks: list[bytes], topic: str, receipt: PopReceipt) -> list[bytes]:
    """Return records of a retry topic under the original topic's name, each with its receipt."""
    found = []
    for chunk in chunks:
        for message in decode_records(chunk):
            own = msgspec.structs.replace(receipt, queue_offset=message.queue_offset)
            message.properties.setdefault(Property.POP_CK, encode_receipt(own))
            message.topic = topic
            found.append(encode_message(message))
    return found
