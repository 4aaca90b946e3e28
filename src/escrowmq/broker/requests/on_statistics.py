"""Serves statistics for operators: progress of groups, counters, and the ends and units of
queues."""

from __future__ import annotations

from typing import Any

from escrowmq.base.answer import Answer, Refusal, Reply
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import NOT_SET, Response
from escrowmq.broker.identity import Identity
from escrowmq.broker.incoming_request import IncomingRequest
from escrowmq.codec import fastjson
from escrowmq.codec.fastjson import QueueId
from escrowmq.codec.headers import (
    ConsumeStatsHeader,
    GroupHeader,
    GroupTopicHeader,
    QueryQueueHeader,
    StatsHeader,
    TopicHeader,
)
from escrowmq.delivery.clients import Clients
from escrowmq.delivery.group_readers import GroupReaders
from escrowmq.delivery.groups import GroupTable
from escrowmq.delivery.offsets import OffsetTable
from escrowmq.delivery.recent_pop_clients import RecentPopClients
from escrowmq.delivery.stats import GET_COUNT, PUT_COUNT, Stats
from escrowmq.delivery.topics import TopicTable
from escrowmq.store.store import Store


class StatisticsHandlers:
    """Serves operators' requests for statistics (codes 202, 208, 300, 303, 315, 317, 321, 343)."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store: Store,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        clients: Clients,
        poppers: RecentPopClients,
        readers: GroupReaders,
        stats: Stats,
        identity: Identity,
    ) -> None:
        self._settings = settings
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._clients = clients
        self._poppers = poppers
        self._readers = readers
        self._stats = stats
        self._identity = identity

    def _queue(self, topic: str, queue_id: int) -> QueueId:
        return QueueId(broker_name=self._settings.name, queue_id=queue_id, topic=topic)

    # -- topics ------------------------------------------------------------------------------

    def topic_stats(self, request: IncomingRequest[TopicHeader]) -> Reply:
        """Answer with the ends and last store times of a topic's queues."""
        name = request.header.topic
        topic = self._topics.get(name)
        if topic is None:
            return _no_topic_refusal(name)
        table = []
        for queue_id in range(max(topic.read_queue_nums, topic.write_queue_nums)):
            low, high = self._store.bounds(name, queue_id)
            last_ms = self._store.stored_ms_at(name, queue_id, high - 1) if high > low else 0
            table.append(
                (
                    self._queue(name, queue_id),
                    {"lastUpdateTimestamp": max(0, last_ms), "maxOffset": high, "minOffset": low},
                )
            )
        meter = self._stats.meter(PUT_COUNT, name)
        tps = meter.minute().tps if meter else 0.0
        body = b'{"offsetTable":%b,"topicPutTps":%b}' % (
            fastjson.encode_fastjson_map(table),
            fastjson.encode(tps),
        )
        return Answer(body=body)

    def consuming_groups(self, request: IncomingRequest[TopicHeader]) -> Reply:
        """Answer with the groups that read a topic: those that are connected or have offsets in
        it."""
        name = request.header.topic
        live = self._clients.groups_on(name) + self._poppers.groups_on(name)
        groups = dict.fromkeys(live + self._offsets.groups_of(name))
        body = fastjson.encode({"groupList": list(groups)})
        return Answer(body=body)

    # -- progress ----------------------------------------------------------------------------

    def _group_progress(self, group: str, topic: str) -> list[tuple[QueueId, dict[str, int]]]:
        config = self._topics.get(topic)
        found = []
        for queue_id in range(config.read_queue_nums if config else 0):
            _, high = self._store.bounds(topic, queue_id)
            committed = max(0, self._offsets.get(group, topic, queue_id))
            pulled = max(committed, self._offsets.pulled_offset(group, topic, queue_id))
            last_ms = 0
            if committed > 0:
                last_ms = max(0, self._store.stored_ms_at(topic, queue_id, committed - 1))
            found.append(
                (
                    self._queue(topic, queue_id),
                    {
                        "brokerOffset": high,
                        "consumerOffset": committed,
                        "lastTimestamp": last_ms,
                        "pullOffset": pulled,
                    },
                )
            )
        return found

    def consume_stats(self, request: IncomingRequest[ConsumeStatsHeader]) -> Reply:
        """Answer with the progress of one group."""
        header = request.header
        group = header.consumer_group
        if header.topic:
            topics = [header.topic]
        elif header.topic_list:
            topics = [topic for topic in header.topic_list.split(";") if topic]
        else:
            topics = self._offsets.topics_of(group)
        online = self._clients.consumers.get(group)
        table: list[tuple[QueueId, dict[str, int]]] = []
        tps = 0.0
        for topic in topics:
            is_foreign = online is not None and self._readers.subscription(group, topic) is None
            if is_foreign and not header.topic:
                continue
            table += self._group_progress(group, topic)
            meter = self._stats.meter(GET_COUNT, f"{topic}@{group}")
            tps += meter.minute().tps if meter else 0.0
        body = b'{"consumeTps":%b,"offsetTable":%b}' % (
            fastjson.encode(tps),
            fastjson.encode_fastjson_map(table),
        )
        return Answer(body=body)

    def all_consume_stats(self, request: IncomingRequest[None]) -> Reply:
        """Answer with the progress of every group."""
        is_order = (request.command.ext or {}).get("isOrder", "false").lower() == "true"
        rows: list[bytes] = []
        behind = in_flight = 0
        topics_by_group = self._offsets.topics_by_group()
        for group in self._groups.names():
            stats: list[bytes] = []
            for topic in topics_by_group.get(group, ()):
                config = self._topics.get(topic)
                if config is None or (is_order and not config.order):
                    continue
                table = self._group_progress(group, topic)
                behind += sum(max(0, q["brokerOffset"] - q["consumerOffset"]) for _, q in table)
                in_flight += sum(max(0, q["pullOffset"] - q["consumerOffset"]) for _, q in table)
                stats.append(
                    b'{"consumeTps":0.0,"offsetTable":' + fastjson.encode_fastjson_map(table) + b"}"
                )
            if stats:
                rows.append(b"{%b:[%b]}" % (fastjson.encode(group), b",".join(stats)))
        body = b'{"brokerAddr":%b,"consumeStatsList":[%b],"totalDiff":%d,"totalInflightDiff":%d}'
        return Answer(
            body=body
            % (fastjson.encode(self._identity.address), b",".join(rows), behind, in_flight)
        )

    def consume_time_span(self, request: IncomingRequest[GroupTopicHeader]) -> Reply:
        """Answer with the oldest and newest message times of each queue, and a group's position."""
        header = request.header
        topic = self._topics.get(header.topic)
        if topic is None:
            return _no_topic_refusal(header.topic)
        spans = []
        for queue_id in range(topic.write_queue_nums):
            low, high = self._store.bounds(header.topic, queue_id)
            at = self._offsets.get(header.group, header.topic, queue_id)
            stored_ms = self._store.stored_ms_at
            consumed_ms = stored_ms(header.topic, queue_id, at - 1) if at > 0 else -1
            is_behind = 0 <= at < high
            delay_ms = request.now_ms - stored_ms(header.topic, queue_id, at) if is_behind else 0
            spans.append(
                {
                    "consumeTimeStamp": max(0, consumed_ms),
                    "delayTime": delay_ms,
                    "maxTimeStamp": max(0, stored_ms(header.topic, queue_id, high - 1)),
                    "messageQueue": self._queue(header.topic, queue_id),
                    "minTimeStamp": max(0, stored_ms(header.topic, queue_id, low)),
                }
            )
        return Answer(body=fastjson.encode({"consumeTimeSpanSet": spans}))

    def topics_of_group(self, request: IncomingRequest[GroupHeader]) -> Reply:
        """Answer with the topics where a group has offsets."""
        group = request.header.group
        body = {
            "brokerAddr": self._identity.address,
            "topicList": self._offsets.topics_of(group),
        }
        return Answer(body=fastjson.encode(body))

    # -- counters and queues -----------------------------------------------------------------

    def counter_stats(self, request: IncomingRequest[StatsHeader]) -> Reply:
        """Answer with one counter over a minute, an hour and a day."""
        header = request.header
        meter = self._stats.meter(header.stats_name, header.stats_key)
        if meter is None:
            return Refusal(
                Response.SYSTEM_ERROR,
                f"The stats <{header.stats_name}> <{header.stats_key}> not exist",
            )
        body = fastjson.encode(
            {
                "statsDay": meter.day(),
                "statsHour": meter.hour(),
                "statsMinute": meter.minute(),
            }
        )
        return Answer(body=body)

    def queue_units(self, request: IncomingRequest[QueryQueueHeader]) -> Reply:
        """Answer with units of a consume queue as they are on disk."""
        header = request.header
        name = f"{header.queue_id}@{header.topic}"
        if header.queue_id not in self._store.queues_of(header.topic):
            return Refusal(Response.SYSTEM_ERROR, f"{name} is not exist!")
        low, high = self._store.bounds(header.topic, header.queue_id)
        if not low <= header.index < max(high, low + 1):
            return Answer(remark=f"Index {header.index} of {name} is not exist!")
        body: dict[str, Any] = {"maxQueueIndex": high, "minQueueIndex": low}
        body["queueData"] = [
            {"eval": False, "physicOffset": offset, "physicSize": size, "tagsCode": code}
            for offset, size, code in self._store.read_units(
                header.topic, header.queue_id, header.index, max(0, min(header.count, 10_000))
            )
        ]
        if header.consumer_group:
            subscription = self._readers.subscription(header.consumer_group, header.topic)
            if subscription is None:
                body["filterData"] = f"{header.consumer_group}@{header.topic} is not online!"
            else:
                body["filterData"] = "null"
                body["subscriptionData"] = subscription
        return Answer(body=fastjson.encode(body), remark=NOT_SET)


def _no_topic_refusal(name: str) -> Refusal:
    return Refusal(Response.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
