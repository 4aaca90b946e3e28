"""Consumer offsets, and the ends and times of queues."""

from __future__ import annotations

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.broker.state import Broker, Handler, Peer
from escrowmq.codec.command import encode_reply
from escrowmq.codec.headers import (
    CommitHeader,
    OffsetHeader,
    QueueHeader,
    SearchOffsetHeader,
    read_header,
)


class OffsetHandlers:
    """Codes 14, 15, 29, 30, 31, 32."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> dict[int, Handler]:
        """Request codes and who serves them."""
        return {
            Request.QUERY_CONSUMER_OFFSET: self.query,
            Request.UPDATE_CONSUMER_OFFSET: self.commit,
            Request.SEARCH_OFFSET_BY_TIMESTAMP: self.search,
            Request.GET_MAX_OFFSET: self.newest,
            Request.GET_MIN_OFFSET: self.oldest,
            Request.GET_EARLIEST_MSG_STORETIME: self.earliest_time,
        }

    def query(self, peer: Peer, request: Command, now_ms: int) -> bytes:
        """How far a group has read a queue."""
        header = read_header(OffsetHeader, request.ext)
        broker = self._broker
        topic, queue_id = header.topic, header.queue_id
        offset = broker.offsets.get(header.consumer_group, topic, queue_id)
        if offset >= 0:
            return _offset(request, offset)
        if not header.set_zero_if_not_found:
            return encode_reply(
                request,
                Response.QUERY_NOT_FOUND,
                remark="Not found, do not set to zero, maybe this group boot first",
            )
        low, _ = broker.store.bounds(topic, queue_id)
        # A new group starts at 0 where the whole queue is there and still in memory, whatever
        # CONSUME_FROM_LAST_OFFSET says: the peer's rule (ConsumerManageProcessor).
        if low <= 0 and self._is_recent(topic, queue_id):
            return _offset(request, 0)
        return encode_reply(
            request,
            Response.QUERY_NOT_FOUND,
            remark="Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
        )

    def _is_recent(self, topic: str, queue_id: int) -> bool:
        store = self._broker.store
        entries = store.entries(topic, queue_id, 0, 1)
        if not entries:
            return True
        settings = self._broker.store_settings
        return store.end_offset - entries[0][0] <= (
            settings.memory_size * settings.memory_percent // 100
        )

    def commit(self, peer: Peer, request: Command, now_ms: int) -> bytes:
        """A group has read up to an offset."""
        header = read_header(CommitHeader, request.ext)
        broker = self._broker
        group, topic = header.consumer_group, header.topic
        if broker.groups.get(group, now_ms) is None:
            return encode_reply(
                request,
                Response.SUBSCRIPTION_GROUP_NOT_EXIST,
                remark=f"Group {group} not exist!",
            )
        if broker.topics.get(topic) is None:
            return encode_reply(
                request, Response.TOPIC_NOT_EXIST, remark=f"Topic {topic} not exist!"
            )
        if header.queue_id is None:
            return encode_reply(
                request, Response.INVALID_PARAMETER, remark=f"QueueId is null, topic is {topic}"
            )
        if header.commit_offset is None:
            return encode_reply(
                request, Response.INVALID_PARAMETER, remark=f"Offset is null, topic is {topic}"
            )
        if not self._has_queue(topic, header.queue_id):
            return encode_reply(
                request,
                Response.INVALID_PARAMETER,
                remark=f"queue {header.queue_id} of {topic} does not exist; its offset is not kept "
                "(escrowPlacesAsRocketMQ=true keeps it)",
            )
        if broker.offsets.has_reset(group, topic, header.queue_id):
            return encode_reply(
                request, Response.SUCCESS, remark="Offset has been previously reset"
            )
        broker.offsets.commit(group, topic, header.queue_id, header.commit_offset, now_ms)
        return encode_reply(request, Response.SUCCESS)

    def _has_queue(self, topic: str, queue_id: int) -> bool:
        """Whether an offset of a queue is worth keeping. One that its topic lost when it was made
        narrower still has messages. The peer keeps any, and its file grows with them."""
        broker = self._broker
        config = broker.topics.get(topic)
        if broker.settings.places_as_peer or config is None:
            return broker.settings.places_as_peer
        count = max(config.read_queue_nums, config.write_queue_nums)
        return 0 <= queue_id < count or broker.store.bounds(topic, queue_id)[1] > 0

    def search(self, peer: Peer, request: Command, now_ms: int) -> bytes:
        """The offset at a time."""
        header = read_header(SearchOffsetHeader, request.ext)
        offset = self._broker.store.offset_at(
            header.topic,
            header.queue_id,
            header.timestamp,
            upper=header.boundary_type.upper() == "UPPER",
        )
        return _offset(request, offset)

    def newest(self, peer: Peer, request: Command, now_ms: int) -> bytes:
        """One past the last offset."""
        header = read_header(QueueHeader, request.ext)
        return _offset(request, self._broker.store.bounds(header.topic, header.queue_id)[1])

    def oldest(self, peer: Peer, request: Command, now_ms: int) -> bytes:
        """The first offset that is still there."""
        header = read_header(QueueHeader, request.ext)
        low = self._broker.store.bounds(header.topic, header.queue_id)[0]
        return _offset(request, low, remark="")

    def earliest_time(self, peer: Peer, request: Command, now_ms: int) -> bytes:
        """When the oldest message was stored; -1 when there is none."""
        header = read_header(QueueHeader, request.ext)
        store = self._broker.store
        low, _ = store.bounds(header.topic, header.queue_id)
        stored_ms = store.stored_ms_at(header.topic, header.queue_id, low)
        return encode_reply(request, Response.SUCCESS, ext={"timestamp": str(stored_ms)})


def _offset(request: Command, offset: int, remark: str | None = None) -> bytes:
    return encode_reply(request, Response.SUCCESS, ext={"offset": str(offset)}, remark=remark)
