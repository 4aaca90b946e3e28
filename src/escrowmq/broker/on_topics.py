"""Administration of topics and consumer groups."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from escrowmq.base.codes import NOT_SET, Request, Response
from escrowmq.base.command import Command
from escrowmq.base.limits import GROUP_SIZE_MAX, TOPIC_QUEUES_MAX
from escrowmq.base.message import Topic
from escrowmq.broker.state import Broker, Handler, Peer
from escrowmq.codec import fastjson
from escrowmq.codec.bodies import decode_body
from escrowmq.codec.command import encode_reply
from escrowmq.codec.headers import (
    CreateTopicHeader,
    DeleteGroupHeader,
    GroupHeader,
    GroupTopicHeader,
    TopicHeader,
    read_header,
)
from escrowmq.codec.receipt import RETRY_V1, RETRY_V2, retry_topic
from escrowmq.delivery.subscriptions import GroupConfig, is_group_name
from escrowmq.delivery.topics import (
    MESSAGE_TYPE,
    TopicConfig,
    merge_attributes,
    name_fault,
    parse_attributes,
)
from escrowmq.errors import UsageError

_MIXED: Final = "MIXED"


class _TopicListBody(msgspec.Struct, rename="camel"):
    topic_config_list: list[TopicConfig]


class _GroupListBody(msgspec.Struct, rename="camel"):
    group_config_list: list[GroupConfig]


class TopicHandlers:
    """Codes 17, 18, 21, 215, 305, 351 and 200, 201, 207, 225, 352, 353."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> dict[int, Handler]:
        """Request codes and who serves them."""
        return {
            Request.UPDATE_AND_CREATE_TOPIC: self.put_topic,
            Request.UPDATE_AND_CREATE_TOPIC_LIST: self.put_topics,
            Request.GET_ALL_TOPIC_CONFIG: self.all_topics,
            Request.DELETE_TOPIC_IN_BROKER: self.delete_topic,
            Request.GET_TOPIC_CONFIG: self.get_topic,
            Request.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_topics,
            Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.put_group,
            Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.put_groups,
            Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.all_groups,
            Request.DELETE_SUBSCRIPTIONGROUP: self.delete_group,
            Request.GET_SUBSCRIPTIONGROUP_CONFIG: self.get_group,
            Request.UPDATE_AND_GET_GROUP_FORBIDDEN: self.forbid,
        }

    # -- topics ------------------------------------------------------------------------------

    def put_topic(self, peer: Peer, request: Command, now_ms: int) -> bytes:
        """Create a topic or change it."""
        header = read_header(CreateTopicHeader, request.ext)
        config = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type,
            topic_sys_flag=header.topic_sys_flag,
            order=header.order,
        )
        try:
            changes = parse_attributes(header.attributes)
        except UsageError as error:
            return encode_reply(request, Response.SYSTEM_ERROR, remark=str(error))
        return self._put_topic(request, config, changes, now_ms)

    def _topic_fault(self, config: TopicConfig) -> str | None:
        name = config.topic_name
        fault = name_fault(name)
        if fault is not None:
            return fault
        broker = self._broker
        if broker.settings.protects_system_topics and broker.topics.is_system(name):
            return f"The topic[{name}] is conflict with system topic."
        reads, writes = config.read_queue_nums, config.write_queue_nums
        if not (0 <= reads <= TOPIC_QUEUES_MAX and 0 <= writes <= TOPIC_QUEUES_MAX):
            return (
                f"readQueueNums is {reads} and writeQueueNums {writes}; 0 to {TOPIC_QUEUES_MAX} "
                "are allowed"
            )
        return None

    def _put_topic(
        self, request: Command, config: TopicConfig, changes: dict[str, str], now_ms: int
    ) -> bytes:
        refusal = self._merge(config, changes)
        if refusal is not None:
            return encode_reply(request, refusal[0], remark=refusal[1])
        self._broker.topics.put(config, now_ms)
        return encode_reply(request, Response.SUCCESS, remark=NOT_SET)

    def _merge(self, config: TopicConfig, changes: dict[str, str]) -> tuple[int, str] | None:
        """Give a configuration its attributes; code and remark when it cannot be."""
        broker = self._broker
        fault = self._topic_fault(config)
        if fault is None and (
            changes.get(f"+{MESSAGE_TYPE}") == _MIXED and not broker.settings.allows_mixed_type
        ):
            fault = "MIXED message type is not supported."
        if fault is not None:
            return Response.INVALID_PARAMETER, fault
        known = broker.topics.get(config.topic_name)
        try:
            config.attributes = merge_attributes(
                known.attributes if known else {}, changes, is_new=known is None
            )
        except UsageError as error:
            return Response.SYSTEM_ERROR, str(error)
        return None

    def put_topics(self, peer: Peer, request: Command, now_ms: int) -> bytes:
        """Create or change several; none when one is refused."""
        configs = decode_body(_TopicListBody, request.body).topic_config_list
        for config in configs:
            changes = ",".join(
                f"{name if name[:1] in ('+', '-') else f'+{name}'}={value}"
                for name, value in config.attributes.items()
            )
            refusal = self._merge(config, parse_attributes(changes))
            if refusal is not None:
                return encode_reply(request, refusal[0], remark=refusal[1])
        for config in configs:
            self._broker.topics.put(config, now_ms)
        return encode_reply(request, Response.SUCCESS, remark=NOT_SET)

    def all_topics(self, peer: Peer, request: Command, now_ms: int) -> bytes:
        """Every topic's configuration."""
        file = msgspec.to_builtins(self._broker.topics.file())
        file["mappingDataVersion"] = file["dataVersion"]
        file["topicQueueMappingDetailMap"] = {}
        file["topicQueueMappingInfoMap"] = {}
        ext = {"totalTopicNum": str(len(file["topicConfigTable"]))}
        return encode_reply(request, Response.SUCCESS, body=fastjson.encode(file), ext=ext)

    def delete_topic(self, peer: Peer, request: Command, now_ms: int) -> bytes:
        """Forget a topic, its messages' queues and its offsets."""
        name = read_header(TopicHeader, request.ext).topic
        broker = self._broker
        if not name.strip():
            return encode_reply(
                request, Response.INVALID_PARAMETER, remark="The specified topic is blank."
            )
        if broker.settings.protects_system_topics and broker.topics.is_system(name):
            return encode_reply(
                request,
                Response.INVALID_PARAMETER,
                remark=f"The topic[{name}] is conflict with system topic.",
            )
        doomed = [name]
        if broker.settings.clears_retry_topics:
            doomed += self._retry_topics(name)
        for topic in doomed:
            broker.topics.delete(topic, now_ms)
            broker.store.delete_topic(topic)
            broker.offsets.forget_topic(topic)
            broker.stats.forget(topic)
        return encode_reply(request, Response.SUCCESS)

    def _retry_topics(self, name: str) -> list[str]:
        """Where messages of a topic come again that groups have popped. The older spelling may be
        the name of another's retry topic as well, which then stays."""
        broker = self._broker
        found = []
        for group in broker.offsets.groups_of(name):
            found.append(retry_topic(name, group, RETRY_V2))
            older = retry_topic(name, group, RETRY_V1)
            others = set(broker.offsets.groups_of(older)) - {group}
            is_pulled = older.removeprefix(Topic.RETRY_PREFIX) in broker.clients.consumers
            if not others and not is_pulled:
                found.append(older)
        return [topic for topic in found if broker.topics.get(topic) is not None]

    def get_topic(self, peer: Peer, request: Command, now_ms: int) -> bytes:
        """One topic's configuration."""
        name = read_header(TopicHeader, request.ext).topic
        config = self._broker.topics.get(name)
        if config is None:
            return encode_reply(
                request,
                Response.TOPIC_NOT_EXIST,
                remark=f"No topic in this broker. topic: {name}",
            )
        return encode_reply(request, Response.SUCCESS, body=fastjson.encode(config))

    def system_topics(self, peer: Peer, request: Command, now_ms: int) -> bytes:
        """Topics that the broker keeps for itself."""
        topics = self._broker.topics
        names = [name for name in topics.names() if topics.is_system(name)]
        return encode_reply(request, Response.SUCCESS, body=fastjson.encode({"topicList": names}))

    # -- groups ------------------------------------------------------------------------------

    def put_group(self, peer: Peer, request: Command, now_ms: int) -> bytes:
        """Create a consumer group or change it."""
        self._put_group(decode_body(GroupConfig, request.body), now_ms)
        return encode_reply(request, Response.SUCCESS)

    def put_groups(self, peer: Peer, request: Command, now_ms: int) -> bytes:
        """Several at once."""
        for config in decode_body(_GroupListBody, request.body).group_config_list:
            self._put_group(config, now_ms)
        return encode_reply(request, Response.SUCCESS)

    def _put_group(self, config: GroupConfig, now_ms: int) -> None:
        if config.retry_queue_nums > TOPIC_QUEUES_MAX:
            raise UsageError(
                f"retryQueueNums is {config.retry_queue_nums}; {TOPIC_QUEUES_MAX} are allowed"
            )
        known = self._broker.groups.peek(config.group_name)
        if known is None and not is_group_name(config.group_name):
            raise UsageError(
                f"the group's name is {config.group_name[:64]!r}; {GROUP_SIZE_MAX} of the letters "
                "^[%|a-zA-Z0-9_-]+$ are allowed"
            )
        changes: dict[str, str] = {
            (name if name[:1] in "+-" else f"+{name}"): value
            for name, value in config.attributes.items()
        }
        config.attributes = merge_attributes(
            known.attributes if known else {}, changes, is_new=known is None
        )
        self._broker.groups.put(config, now_ms)

    def all_groups(self, peer: Peer, request: Command, now_ms: int) -> bytes:
        """Every group's configuration."""
        body = fastjson.encode(_without_nulls(msgspec.to_builtins(self._broker.groups.file())))
        return encode_reply(request, Response.SUCCESS, body=body)

    def delete_group(self, peer: Peer, request: Command, now_ms: int) -> bytes:
        """Forget a group, and its offsets when asked."""
        header = read_header(DeleteGroupHeader, request.ext)
        broker = self._broker
        broker.groups.delete(header.group_name, now_ms)
        if header.clean_offset:
            broker.offsets.forget_group(header.group_name)
        if broker.settings.creates_groups:
            retry = Topic.RETRY_PREFIX + header.group_name
            if header.group_name not in broker.clients.consumers:
                broker.topics.delete(retry, now_ms)
        return encode_reply(request, Response.SUCCESS)

    def get_group(self, peer: Peer, request: Command, now_ms: int) -> bytes:
        """One group's configuration; asking creates it where groups may be created."""
        config = self._broker.groups.get(read_header(GroupHeader, request.ext).group, now_ms)
        if config is None:
            return encode_reply(
                request,
                Response.SUBSCRIPTION_GROUP_NOT_EXIST,
                remark="No group in this broker",
            )
        body = fastjson.encode(_without_nulls(msgspec.to_builtins(config)))
        return encode_reply(request, Response.SUCCESS, body=body)

    def forbid(self, peer: Peer, request: Command, now_ms: int) -> bytes:
        """Let a group read a topic, or not; without a wish, tell which."""
        header = read_header(GroupTopicHeader, request.ext)
        groups = self._broker.groups
        if header.readable is False and not self._broker.settings.places_as_peer:
            # The peer keeps what it is told of any name.
            if groups.peek(header.group) is None:
                remark = f"Group {header.group} not exist!"
                return encode_reply(request, Response.SUBSCRIPTION_GROUP_NOT_EXIST, remark=remark)
            if self._broker.topics.get(header.topic) is None:
                remark = f"Topic {header.topic} not exist!"
                return encode_reply(request, Response.TOPIC_NOT_EXIST, remark=remark)
        if header.readable is not None:
            groups.forbid(header.group, header.topic, is_readable=header.readable, now_ms=now_ms)
        answer = {
            "group": header.group,
            "readable": not groups.is_forbidden(header.group, header.topic),
            "topic": header.topic,
        }
        return encode_reply(request, Response.SUCCESS, body=fastjson.encode(answer), remark="")


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 - JSON is what it is
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    return value
