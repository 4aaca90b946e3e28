"""Serves requests about consumer offsets, and about the ends and times of queues."""

from __future__ import annotations

from escrowmq.base.answer import DONE, Answer, Refusal, Reply
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Response
from escrowmq.base.store_settings import StoreSettings
from escrowmq.broker.answers.answer_delivery import AnswerSender
from escrowmq.broker.incoming_request import IncomingRequest
from escrowmq.codec.headers import (
    CommitOffsetHeader,
    QueryOffsetHeader,
    QueueHeader,
    SearchOffsetHeader,
)
from escrowmq.delivery.existing_queues import ExistingQueues
from escrowmq.delivery.groups import GroupTable
from escrowmq.delivery.offsets import OffsetTable
from escrowmq.delivery.own_progress import is_own_progress
from escrowmq.delivery.topics import TopicTable
from escrowmq.store.store import Store


class OffsetHandlers:
    """Serves requests about offsets (codes 14, 15, 29, 30, 31, 32)."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store_settings: StoreSettings,
        store: Store,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        answers: AnswerSender,
    ) -> None:
        self._store_settings = store_settings
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._queues = ExistingQueues(settings, topics, store)
        self._answers = answers

    def query_offset(self, request: IncomingRequest[QueryOffsetHeader]) -> Reply:
        """Answer with the committed offset of a group in a queue."""
        header = request.header
        topic, queue_id = header.topic, header.queue_id
        offset = self._offsets.get(header.consumer_group, topic, queue_id)
        if offset >= 0:
            return _offset_answer(offset)
        unknown = self._answer_without_offset(header)
        # Without a confirmed answer the group could start like a new one, and skip messages. On a
        # full disk nothing can be confirmed, but new groups must still be able to start.
        if self._store.write_gate.is_short_of_disk:
            return unknown
        return self._answers.after_confirmation(request, unknown)

    def _answer_without_offset(self, header: QueryOffsetHeader) -> Answer | Refusal:
        """Return the answer about a group that has no offset in a queue: offset 0, or that none was
        found."""
        topic, queue_id = header.topic, header.queue_id
        if not header.set_zero_if_not_found:
            return Refusal(
                Response.QUERY_NOT_FOUND,
                "Not found, do not set to zero, maybe this group boot first",
            )
        low, _ = self._store.bounds(topic, queue_id)
        # A new group starts at 0 where the whole queue is there and still in memory, whatever
        # CONSUME_FROM_LAST_OFFSET says: RocketMQ's rule (ConsumerManageProcessor).
        if low <= 0 and self._is_queue_in_memory(topic, queue_id):
            return _offset_answer(0)
        return Refusal(
            Response.QUERY_NOT_FOUND,
            "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
        )

    def _is_queue_in_memory(self, topic: str, queue_id: int) -> bool:
        store = self._store
        entries = store.read_units(topic, queue_id, 0, 1)
        if not entries:
            return True
        settings = self._store_settings
        return store.end_offset - entries[0][0] <= (
            settings.memory_size * settings.memory_percent // 100
        )

    def commit_offset(self, request: IncomingRequest[CommitOffsetHeader]) -> Reply:
        """Commit an offset for a group."""
        header = request.header
        group, topic = header.consumer_group, header.topic
        if self._groups.get_or_create(group, request.now_ms) is None:
            return Refusal(Response.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        if self._topics.get(topic) is None:
            return Refusal(Response.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        if header.queue_id is None:
            return Refusal(Response.INVALID_PARAMETER, f"QueueId is null, topic is {topic}")
        if header.commit_offset is None:
            return Refusal(Response.INVALID_PARAMETER, f"Offset is null, topic is {topic}")
        if (topic, header.queue_id) not in self._queues:
            return Refusal(
                Response.INVALID_PARAMETER,
                f"queue {header.queue_id} of {topic} does not exist; its offset is not kept "
                "(escrowPlacesAsRocketMQ=true keeps it)",
            )
        if is_own_progress(group, topic):
            return Refusal(
                Response.NO_PERMISSION, f"the broker itself keeps the offsets of {group} in {topic}"
            )
        if self._offsets.has_reset(group, topic, header.queue_id):
            return Answer(remark="Offset has been previously reset")
        if why := self._offsets.why_not_kept(group, topic, header.queue_id, request.now_ms):
            return Refusal(Response.SYSTEM_ERROR, f"the offset of {group} is not kept: {why}")
        self._offsets.commit(group, topic, header.queue_id, header.commit_offset, request.now_ms)
        return DONE

    def search_offset(self, request: IncomingRequest[SearchOffsetHeader]) -> Reply:
        """Answer with the queue offset for a time."""
        header = request.header
        offset = self._store.offset_at(
            header.topic,
            header.queue_id,
            header.timestamp,
            upper=header.boundary_type.upper() == "UPPER",
        )
        return _offset_answer(offset)

    def max_offset(self, request: IncomingRequest[QueueHeader]) -> Reply:
        """Answer with the offset after a queue's newest message."""
        header = request.header
        return _offset_answer(self._store.bounds(header.topic, header.queue_id)[1])

    def min_offset(self, request: IncomingRequest[QueueHeader]) -> Reply:
        """Answer with the offset of a queue's oldest message."""
        header = request.header
        low = self._store.bounds(header.topic, header.queue_id)[0]
        return _offset_answer(low, remark="")

    def earliest_store_time(self, request: IncomingRequest[QueueHeader]) -> Reply:
        """Answer with the time of a queue's oldest message; -1 when it has none."""
        header = request.header
        store = self._store
        low, _ = store.bounds(header.topic, header.queue_id)
        stored_ms = store.stored_ms_at(header.topic, header.queue_id, low)
        return Answer(ext={"timestamp": str(stored_ms)})


def _offset_answer(offset: int, remark: str | None = None) -> Answer:
    return Answer(ext={"offset": str(offset)}, remark=remark)
