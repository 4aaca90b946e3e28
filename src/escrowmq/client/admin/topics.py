"""Topics: list, describe, create, change and delete them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec

from escrowmq.base.codes import Request, Response
from escrowmq.base.fixed_limits import TOPIC_QUEUES_MAX
from escrowmq.base.message import Topic
from escrowmq.client.admin.cluster_calls import ClusterCalls
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.unreadable_answers import convert_parse_errors
from escrowmq.client.core.validation import check_topic
from escrowmq.codec.client_bodies import decode_body, decode_queue_table
from escrowmq.codec.routes import RegisteredTopic
from escrowmq.errors import RouteMissing, TopicNotFound, UsageError, response_error

QUEUES_DEFAULT: Final = 8
PERMISSIONS: Final = {"rw": 6, "r": 4, "w": 2, "": 0}
_PERMISSION_NAMES: Final = {value: name for name, value in PERMISSIONS.items()}
_ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"


class TopicInfo(msgspec.Struct, kw_only=True, rename="camel"):
    """A topic, as one broker has it."""

    topic: str
    broker: str
    read_queues: int
    write_queues: int
    permission: str
    """`rw`, `r`, `w` or empty."""
    is_ordered: bool = False
    attributes: dict[str, str] = {}


class _QueueBounds(msgspec.Struct, rename="camel"):
    """The first and the last offset of a queue, in a broker's answer (RocketMQ's TopicOffset)."""

    min_offset: int
    max_offset: int
    last_update_timestamp: int


class QueueStatus(msgspec.Struct, kw_only=True, rename="camel"):
    """The bounds of a queue's messages."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    updated_ms: int
    """The store time of the queue's newest message; 0 if the queue is empty."""


class TopicDescription(msgspec.Struct, kw_only=True, rename="camel"):
    """A topic's configuration, queues and readers."""

    topic: str
    brokers: list[TopicInfo]
    queues: list[QueueStatus]
    groups: list[str]
    """Consumer groups that read the topic now, or did before."""
    missing: list[str] = []
    """Brokers that left within the last hour; what they have of the topic is not included."""

    @property
    def count(self) -> int:
        """Number of stored messages."""
        return sum(one.max_offset - one.min_offset for one in self.queues)


class _TopicNames(msgspec.Struct, rename="camel"):
    topic_list: list[str] = []


class _GroupNames(msgspec.Struct, rename="camel"):
    group_list: list[str] = []


class Topics:
    """Topics of the cluster: `Admin.topics`."""

    def __init__(self, cluster: ClusterCalls) -> None:
        self._cluster = cluster

    async def names(self, *, with_system: bool = False) -> list[str]:
        """Return the names of topics, sorted; `with_system` adds the brokers' own, retry topics and
        dead letters."""
        self._cluster.instance.check_usable()
        names = self._cluster.instance.names
        found = set(
            await names.ask_decoded(
                Request.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
                lambda body: decode_body(_TopicNames, body).topic_list,
            )
        )
        if not with_system:
            found -= await self._fetch_system_topics()
            prefixes = (Topic.RETRY_PREFIX, Topic.DLQ_PREFIX, Topic.SYSTEM_PREFIX)
            found = {name for name in found if not name.startswith(prefixes)}
        return sorted(self._cluster.without_namespace(name) for name in found)

    async def describe(self, topic: str) -> TopicDescription:
        """Return a topic's configuration on each broker, its queues and its readers. Raises
        TopicNotFound if there is none."""
        wire_topic = self._cluster.with_namespace(topic)
        readers = self._cluster.read_addresses(await self._broker_names_of(topic))
        infos = await asyncio.gather(
            *(self._fetch_info(name, address, topic) for name, address in readers.items())
        )
        queues: list[QueueStatus] = []
        groups: set[str] = set()
        for address in readers.values():
            fields = {"topic": wire_topic}
            status = await self._cluster.ask(address, Request.GET_TOPIC_STATS_INFO, fields)
            with convert_parse_errors(address, Request.GET_TOPIC_STATS_INFO):
                queues += _parse_statuses(status.body, topic)
            who = await self._cluster.ask_decoded(
                address, Request.QUERY_TOPIC_CONSUME_BY_WHO, _GroupNames, fields=fields
            )
            groups |= {self._cluster.without_namespace(group) for group in who.group_list}
        groups.discard(topic)  # RocketMQ (QueryTopicConsumeByWho) may name the topic itself
        return TopicDescription(
            topic=topic,
            brokers=[*infos],
            queues=sorted(queues, key=lambda one: one.queue),
            groups=sorted(groups),
            missing=await self._cluster.missing_names(),
        )

    async def create(
        self,
        topic: str,
        *,
        queues: int | None = None,
        permission: str | None = None,
        is_ordered: bool | None = None,
        attributes: Mapping[str, str] | None = None,
        broker: str = "",
    ) -> None:
        """Create a topic on all brokers, or on one; by default readable and writable, with 8
        unordered queues. If the topic exists, the given fields are changed and nothing else.
        `attributes` are RocketMQ's, such as `{"message.type": "TRANSACTION"}`."""
        check_topic(topic)
        wire_topic = self._cluster.with_namespace(topic)

        async def create_on_broker(name: str, address: str) -> tuple[str, RegisteredTopic]:
            config = await self._fetch_config_or_default(address, wire_topic)
            if queues is not None:
                config.read_queue_nums = config.write_queue_nums = check_queue_count(queues)
            if permission is not None:
                config.perm = permission_bits(permission)
            if is_ordered is not None:
                config.order = is_ordered
            await self._send_config(address, config, attributes or {})
            return name, config

        masters = await self._cluster.masters(broker)
        made = dict(await self._cluster.run_on_each(masters, create_on_broker))
        if any(config.order for config in made.values()):
            await self._register_queues(wire_topic, made, is_whole=not broker)
        await self._await_route(wire_topic, masters)

    async def update(
        self,
        topic: str,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        permission: str | None = None,
        attributes: Mapping[str, str] | None = None,
        broker: str = "",
    ) -> None:
        """Change the given fields, on all brokers that have the topic or on one. Raises
        TopicNotFound if there is none; RouteMissing, and changes nothing, while one of them has no
        master."""

        async def update_on_broker(name: str, address: str) -> tuple[str, RegisteredTopic]:
            config = await self._fetch_config(address, self._cluster.with_namespace(topic))
            if read_queues is not None:
                config.read_queue_nums = check_queue_count(read_queues)
            if write_queues is not None:
                config.write_queue_nums = check_queue_count(write_queues)
            if permission is not None:
                config.perm = permission_bits(permission)
            await self._send_config(address, config, attributes or {})
            return name, config

        masters = await (self._cluster.masters(broker) if broker else self._masters_of(topic))
        changed = dict(await self._cluster.run_on_each(masters, update_on_broker))
        ordered = {name: config for name, config in changed.items() if config.order}
        if ordered and write_queues is not None:
            await self._register_queues(
                self._cluster.with_namespace(topic), ordered, is_whole=False
            )

    async def delete(self, topic: str) -> None:
        """Delete a topic and its messages everywhere. Raises TopicNotFound if there is none;
        RouteMissing, and deletes nothing, while one of its brokers has no master."""
        wire_topic = self._cluster.with_namespace(topic)
        fields = {"topic": wire_topic}
        masters = await self._masters_of(topic)
        await self._cluster.run_on_each(
            masters,
            lambda _, address: self._cluster.ask(address, Request.DELETE_TOPIC_IN_BROKER, fields),
        )
        order = {"namespace": _ORDER_NAMESPACE, "key": wire_topic}
        for address in self._cluster.instance.options.name_servers:
            await self._cluster.ask(address, Request.DELETE_TOPIC_IN_NAMESRV, fields)
            await self._cluster.ask(address, Request.DELETE_KV_CONFIG, order)
        self._cluster.instance.book.drop(wire_topic)

    # -- inside ------------------------------------------------------------------------------

    async def _broker_names_of(self, topic: str) -> list[str]:
        try:
            return await self._cluster.broker_names_of(topic)
        except RouteMissing as error:
            raise TopicNotFound(f"there is no topic {topic!r}") from error

    async def _masters_of(self, topic: str) -> dict[str, str]:
        return self._cluster.masters_to_change(topic, await self._broker_names_of(topic))

    async def _fetch_info(self, name: str, address: str, topic: str) -> TopicInfo:
        config = await self._fetch_config(address, self._cluster.with_namespace(topic))
        return TopicInfo(
            topic=topic,
            broker=name,
            read_queues=config.read_queue_nums,
            write_queues=config.write_queue_nums,
            permission=_PERMISSION_NAMES.get(config.perm & PERMISSIONS["rw"], ""),
            is_ordered=config.order,
            attributes=config.attributes or {},
        )

    async def _fetch_config(self, address: str, wire_topic: str) -> RegisteredTopic:
        fields = {"topic": wire_topic, "lo": "true"}
        return await self._cluster.ask_decoded(
            address, Request.GET_TOPIC_CONFIG, RegisteredTopic, fields=fields
        )

    async def _send_config(
        self, address: str, config: RegisteredTopic, attributes: Mapping[str, str]
    ) -> None:
        fields = {
            "topic": config.topic_name,
            "defaultTopic": Topic.DEFAULT,
            "readQueueNums": str(config.read_queue_nums),
            "writeQueueNums": str(config.write_queue_nums),
            "perm": str(config.perm),
            "topicFilterType": config.topic_filter_type or "SINGLE_TAG",
            "topicSysFlag": str(config.topic_sys_flag),
            "order": str(config.order).lower(),
        }
        if attributes:
            fields["attributes"] = ",".join(f"+{key}={value}" for key, value in attributes.items())
        await self._cluster.ask(address, Request.UPDATE_AND_CREATE_TOPIC, fields)

    async def _fetch_config_or_default(self, address: str, wire_topic: str) -> RegisteredTopic:
        """Return a topic's configuration as a broker has it. If the broker does not have the topic,
        return a new configuration with default values."""
        try:
            return await self._fetch_config(address, wire_topic)
        except TopicNotFound:
            return RegisteredTopic(
                topic_name=wire_topic,
                read_queue_nums=QUEUES_DEFAULT,
                write_queue_nums=QUEUES_DEFAULT,
                perm=PERMISSIONS["rw"],
                order=False,
            )

    async def _register_queues(
        self, wire_topic: str, made: Mapping[str, RegisteredTopic], *, is_whole: bool
    ) -> None:
        """Register the queues of an ordered topic at the name servers. They then stay the same
        while a broker is unreachable, so that no key moves to another queue. Unless `is_whole`,
        queues of other brokers stay registered: producers send only to registered queues."""
        place = {"namespace": _ORDER_NAMESPACE, "key": wire_topic}
        counts = {name: str(config.write_queue_nums) for name, config in made.items()}
        for address in self._cluster.instance.options.name_servers:
            before = {} if is_whole else await self._registered_queues(address, place)
            value = ";".join(f"{name}:{count}" for name, count in (before | counts).items())
            await self._cluster.ask(address, Request.PUT_KV_CONFIG, {**place, "value": value})

    async def _registered_queues(self, address: str, place: dict[str, str]) -> dict[str, str]:
        reply = await self._cluster.instance.request(address, Request.GET_KV_CONFIG, place)
        if reply.code == Response.QUERY_NOT_FOUND:
            return {}
        if reply.code != Response.SUCCESS:
            raise response_error(reply.code, reply.remark, address=address)
        items = (reply.ext or {}).get("value", "").split(";")
        parts = (item.strip().partition(":") for item in items)
        return {name: count for name, _, count in parts if name and count}

    async def _await_route(self, wire_topic: str, masters: Mapping[str, str]) -> None:
        """Wait until the route includes the topic: brokers register a new topic shortly after they
        have answered."""
        instance = self._cluster.instance
        deadline = instance.now() + instance.options.request_timeout_ms / 1000
        while True:
            try:
                await instance.refresh_route(wire_topic)
                route = instance.book.get(wire_topic)
                names = {data.broker_name for data in (route and route.broker_datas) or ()}
                if masters.keys() <= names:
                    return
            except RouteMissing:
                pass
            if instance.now() >= deadline:
                raise RouteMissing(
                    f"the topic {wire_topic!r} is created, but its brokers have not "
                    "registered it at the name server yet; check that they can reach it"
                )
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def _fetch_system_topics(self) -> set[str]:
        found: set[str] = set()
        for address in (await self._cluster.masters()).values():
            names = await self._cluster.ask_decoded(
                address, Request.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, _TopicNames
            )
            found.update(names.topic_list)
        return found


_LOOK_AGAIN_S: Final = 0.05


def _parse_statuses(body: bytes, topic: str) -> list[QueueStatus]:
    return [
        QueueStatus(
            queue=MessageQueue(topic, queue.broker_name, queue.queue_id),
            min_offset=status.min_offset,
            max_offset=status.max_offset,
            updated_ms=status.last_update_timestamp,
        )
        for queue, status in decode_queue_table(_QueueBounds, body).items()
    ]


def check_queue_count(count: int) -> int:
    """Return the number of queues if it is allowed; raises UsageError otherwise."""
    if not 0 < count <= TOPIC_QUEUES_MAX:
        raise UsageError(f"queues={count!r}; 1 to {TOPIC_QUEUES_MAX} are allowed")
    return count


def permission_bits(name: str) -> int:
    """Return RocketMQ's number for a permission; raises UsageError for an unknown name."""
    if name not in PERMISSIONS:
        raise UsageError(f"permission={name!r}; one of 'rw', 'r', 'w' or '' is expected")
    return PERMISSIONS[name]
