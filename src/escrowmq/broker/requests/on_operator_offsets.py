"""Serves operators' queries and resets of offsets."""

from __future__ import annotations

from collections.abc import Callable

from escrowmq.base.answer import Answer, Refusal, Reply
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request, Response
from escrowmq.base.message import Topic
from escrowmq.broker.incoming_request import IncomingRequest
from escrowmq.broker.peers import Peers
from escrowmq.broker.sends.log_puts import MessageStorer
from escrowmq.codec import fastjson
from escrowmq.codec.fastjson import QueueId
from escrowmq.codec.headers import (
    CloneOffsetHeader,
    CorrectionOffsetHeader,
    ResetOffsetHeader,
)
from escrowmq.delivery.clients import Clients
from escrowmq.delivery.delay_queues import DelayQueues
from escrowmq.delivery.group_readers import GroupReaders
from escrowmq.delivery.groups import GroupTable
from escrowmq.delivery.offsets import OffsetTable
from escrowmq.delivery.topics import TopicTable
from escrowmq.store.store import PutResult, PutStatus, Store

StoreReset = Callable[[str, str, dict[int, int], int], PutResult]
"""Stores the offsets by queue that a group gets in a topic, given the time."""

_ANY_QUEUE = -1
_LATEST = -1


class OperatorOffsetHandlers:
    """Serves operators' requests about offsets (codes 43, 45, 222, 308, 314)."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store: Store,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        clients: Clients,
        readers: GroupReaders,
        delays: DelayQueues,
        peers: Peers,
        putter: MessageStorer,
        store_reset: StoreReset,
    ) -> None:
        self._settings = settings
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._clients = clients
        self._readers = readers
        self._delays = delays
        self._peers = peers
        self._putter = putter
        self._store_reset = store_reset

    def all_offsets(self, request: IncomingRequest[None]) -> Reply:
        """Answer with every committed offset."""
        return Answer(body=self._offsets.encode())

    def delay_offsets(self, request: IncomingRequest[None]) -> Reply:
        """Answer with the progress of each delay level."""
        return Answer(body=self._delays.encode())

    def reset_offsets(self, request: IncomingRequest[ResetOffsetHeader]) -> Reply:
        """Move a group back or forward to a time or an offset."""
        header = request.header
        topic = self._topics.get(header.topic)
        if topic is None:
            return Refusal(Response.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
        if self._groups.find(header.group) is None:
            return Refusal(
                Response.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.group} does not exist"
            )
        if header.queue_id != _ANY_QUEUE:
            queues = [header.queue_id]
        else:
            queues = list(range(topic.read_queue_nums))
        targets: dict[int, int] = {}
        for queue_id in queues:
            target = self._target_offset(header, queue_id)
            low, high = self._store.bounds(header.topic, queue_id)
            if not low <= target <= high:
                return Refusal(
                    Response.SYSTEM_ERROR,
                    f"Target offset {target} not in consume queue range [{low}-{high}]",
                )
            targets[queue_id] = target
        if not targets:
            return Refusal(Response.SYSTEM_ERROR, "No queues to reset.")
        body = self._offset_table_body(header.topic, targets)
        if not self._settings.resets_offsets_here:
            self._send_reset_to_members(header, body)
            return Answer(body=body)
        put = self._store_reset(header.group, header.topic, targets, request.now_ms)
        if put.status is not PutStatus.OK:
            return self._putter.put_refusal(put)
        for queue_id, target in targets.items():
            self._offsets.reset(header.group, header.topic, queue_id, target, request.now_ms)
        return Answer(body=body, log_end=put.log_end)

    def _target_offset(self, header: ResetOffsetHeader, queue_id: int) -> int:
        store = self._store
        if header.queue_id != _ANY_QUEUE and header.offset not in (None, -1):
            assert header.offset is not None
            return header.offset
        if header.timestamp <= _LATEST:
            return store.bounds(header.topic, queue_id)[1]
        return store.offset_at(header.topic, queue_id, header.timestamp, upper=False)

    def _offset_table_body(self, topic: str, targets: dict[int, int]) -> bytes:
        name = self._settings.name
        table = fastjson.encode_fastjson_map(
            (QueueId(broker_name=name, queue_id=queue_id, topic=topic), offset)
            for queue_id, offset in targets.items()
        )
        return b'{"offsetTable":' + table + b"}"

    def _send_reset_to_members(self, header: ResetOffsetHeader, body: bytes) -> None:
        """Order the members of a group to set their own offsets, which is RocketMQ's older
        method."""
        group = self._clients.consumers.get(header.group)
        for peer in group.channels if group is not None else ():
            self._peers.send_one_way(
                peer,
                Request.RESET_CONSUMER_CLIENT_OFFSET,
                ext={
                    "topic": header.topic,
                    "group": header.group,
                    "timestamp": str(header.timestamp),
                    "isForce": "true" if header.is_force else "false",
                },
                body=body,
            )

    def correction_offsets(self, request: IncomingRequest[CorrectionOffsetHeader]) -> Reply:
        """Answer with the lowest offset of the other groups in each queue of a topic, where it is
        lower than the given group's own."""
        header = request.header
        offsets = self._offsets
        skipped = set(filter(None, header.filter_groups.split(",")))
        skipped.add(header.compare_group)
        lowest: dict[int, int] = {}
        for group in offsets.groups_of(header.topic):
            if group in skipped:
                continue
            for queue_id, offset in offsets.offsets_of(group, header.topic).items():
                lowest[queue_id] = min(offset, lowest.get(queue_id, offset))
        own = offsets.offsets_of(header.compare_group, header.topic)
        found = {q: o for q, o in lowest.items() if q not in own or own[q] > o}
        body = b'{"correctionOffsets":' + fastjson.encode_fastjson_map(found.items()) + b"}"
        return Answer(body=body)

    def clone_offsets(self, request: IncomingRequest[CloneOffsetHeader]) -> Reply:
        """Copy the offsets of one group to another."""
        header = request.header
        topics = [header.topic] if header.topic else self._offsets.topics_of(header.src_group)
        log_end = 0
        online = self._clients.consumers.get(header.src_group)
        for topic in topics:
            if self._topics.get(topic) is None:
                continue
            if (
                not header.offline
                and online is not None
                and self._readers.subscription(header.src_group, topic) is None
                and not topic.startswith(Topic.RETRY_PREFIX)
            ):
                continue
            offsets = self._offsets.offsets_of(header.src_group, topic)
            if not offsets:
                continue
            put = self._store_reset(header.dest_group, topic, offsets, request.now_ms)
            if put.status is not PutStatus.OK:
                return self._putter.put_refusal(put)
            self._offsets.clone(header.src_group, header.dest_group, topic, request.now_ms)
            log_end = put.log_end
        return Answer(log_end=log_end)
