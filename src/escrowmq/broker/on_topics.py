"""Administration of topics and consumer groups."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from escrowmq.base.answer import DONE, Answer, Refusal, Reply
from escrowmq.base.codes import NOT_SET, Response
from escrowmq.base.limits import GROUP_SIZE_MAX, TOPIC_QUEUES_MAX
from escrowmq.base.message import Topic
from escrowmq.base.names import NAME_LETTERS
from escrowmq.base.settings import BrokerSettings
from escrowmq.broker.asked import Asked
from escrowmq.codec import fastjson
from escrowmq.codec.bodies import decode_body
from escrowmq.codec.headers import (
    CreateTopicHeader,
    DeleteGroupHeader,
    GroupHeader,
    GroupTopicHeader,
    TopicHeader,
)
from escrowmq.codec.receipt import RETRY_V1, RETRY_V2, retry_topic
from escrowmq.delivery.clients import Clients
from escrowmq.delivery.offsets import OffsetTable
from escrowmq.delivery.stats import Stats
from escrowmq.delivery.subscriptions import GroupConfig, GroupTable, is_group_name
from escrowmq.delivery.topics import (
    MESSAGE_TYPE,
    TopicConfig,
    TopicTable,
    merge_attributes,
    name_fault,
    parse_attributes,
)
from escrowmq.errors import UsageError
from escrowmq.store.store import Store

_MIXED: Final = "MIXED"


class _TopicListBody(msgspec.Struct, rename="camel"):
    topic_config_list: list[TopicConfig]


class _GroupListBody(msgspec.Struct, rename="camel"):
    group_config_list: list[GroupConfig]


class TopicHandlers:
    """Codes 17, 18, 21, 215, 305, 351 and 200, 201, 207, 225, 352, 353."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store: Store,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        clients: Clients,
        stats: Stats,
    ) -> None:
        self._settings = settings
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._clients = clients
        self._stats = stats

    # -- topics ------------------------------------------------------------------------------

    def put_topic(self, asked: Asked[CreateTopicHeader]) -> Reply:
        """Create a topic or change it."""
        header = asked.header
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
            return Refusal(Response.SYSTEM_ERROR, str(error))
        return self._put_topic(config, changes, asked.now_ms)

    def _topic_fault(self, config: TopicConfig) -> str | None:
        name = config.topic_name
        fault = name_fault(name)
        if fault is not None:
            return fault
        if self._settings.protects_system_topics and self._topics.is_system(name):
            return f"The topic[{name}] is conflict with system topic."
        reads, writes = config.read_queue_nums, config.write_queue_nums
        if not (0 <= reads <= TOPIC_QUEUES_MAX and 0 <= writes <= TOPIC_QUEUES_MAX):
            return (
                f"readQueueNums is {reads} and writeQueueNums {writes}; 0 to {TOPIC_QUEUES_MAX} "
                "are allowed"
            )
        return None

    def _put_topic(self, config: TopicConfig, changes: dict[str, str], now_ms: int) -> Reply:
        refusal = self._merge(config, changes)
        if refusal is not None:
            return refusal
        self._topics.put(config, now_ms)
        return Answer(remark=NOT_SET)

    def _merge(self, config: TopicConfig, changes: dict[str, str]) -> Refusal | None:
        """Give a configuration its attributes; why it cannot have them."""
        fault = self._topic_fault(config)
        if fault is None and (
            changes.get(f"+{MESSAGE_TYPE}") == _MIXED and not self._settings.allows_mixed_type
        ):
            fault = "MIXED message type is not supported."
        if fault is not None:
            return Refusal(Response.INVALID_PARAMETER, fault)
        known = self._topics.get(config.topic_name)
        try:
            config.attributes = merge_attributes(
                known.attributes if known else {}, changes, is_new=known is None
            )
        except UsageError as error:
            return Refusal(Response.SYSTEM_ERROR, str(error))
        return None

    def put_topics(self, asked: Asked[None]) -> Reply:
        """Create or change several; none when one is refused."""
        configs = decode_body(_TopicListBody, asked.body).topic_config_list
        for config in configs:
            changes = ",".join(
                f"{name if name[:1] in ('+', '-') else f'+{name}'}={value}"
                for name, value in config.attributes.items()
            )
            refusal = self._merge(config, parse_attributes(changes))
            if refusal is not None:
                return refusal
        for config in configs:
            self._topics.put(config, asked.now_ms)
        return Answer(remark=NOT_SET)

    def all_topics(self, asked: Asked[None]) -> Reply:
        """Every topic's configuration."""
        file = msgspec.to_builtins(self._topics.file())
        file["mappingDataVersion"] = file["dataVersion"]
        file["topicQueueMappingDetailMap"] = {}
        file["topicQueueMappingInfoMap"] = {}
        ext = {"totalTopicNum": str(len(file["topicConfigTable"]))}
        return Answer(body=fastjson.encode(file), ext=ext)

    def delete_topic(self, asked: Asked[TopicHeader]) -> Reply:
        """Forget a topic, its messages' queues and its offsets."""
        name = asked.header.topic
        if not name.strip():
            return Refusal(Response.INVALID_PARAMETER, "The specified topic is blank.")
        if self._settings.protects_system_topics and self._topics.is_system(name):
            return Refusal(
                Response.INVALID_PARAMETER, f"The topic[{name}] is conflict with system topic."
            )
        doomed = [name]
        if self._settings.clears_retry_topics:
            doomed += self._retry_topics(name)
        for topic in doomed:
            self._topics.delete(topic, asked.now_ms)
            self._store.delete_topic(topic)
            self._offsets.forget_topic(topic)
            self._stats.forget(topic)
        return DONE

    def _retry_topics(self, name: str) -> list[str]:
        """Where messages of a topic come again that groups have popped. The older spelling may be
        the name of another's retry topic as well, which then stays."""
        found = []
        for group in self._offsets.groups_of(name):
            found.append(retry_topic(name, group, RETRY_V2))
            older = retry_topic(name, group, RETRY_V1)
            others = set(self._offsets.groups_of(older)) - {group}
            is_pulled = older.removeprefix(Topic.RETRY_PREFIX) in self._clients.consumers
            if not others and not is_pulled:
                found.append(older)
        return [topic for topic in found if self._topics.get(topic) is not None]

    def get_topic(self, asked: Asked[TopicHeader]) -> Reply:
        """One topic's configuration."""
        name = asked.header.topic
        config = self._topics.get(name)
        if config is None:
            return Refusal(Response.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {name}")
        return Answer(body=fastjson.encode(config))

    def system_topics(self, asked: Asked[None]) -> Reply:
        """Topics that the broker keeps for itself."""
        topics = self._topics
        names = [name for name in topics.names() if topics.is_system(name)]
        return Answer(body=fastjson.encode({"topicList": names}))

    # -- groups ------------------------------------------------------------------------------

    def put_group(self, asked: Asked[None]) -> Reply:
        """Create a consumer group or change it."""
        self._put_group(decode_body(GroupConfig, asked.body), asked.now_ms)
        return DONE

    def put_groups(self, asked: Asked[None]) -> Reply:
        """Several at once."""
        for config in decode_body(_GroupListBody, asked.body).group_config_list:
            self._put_group(config, asked.now_ms)
        return DONE

    def _put_group(self, config: GroupConfig, now_ms: int) -> None:
        if config.retry_queue_nums > TOPIC_QUEUES_MAX:
            raise UsageError(
                f"retryQueueNums is {config.retry_queue_nums}; {TOPIC_QUEUES_MAX} are allowed"
            )
        known = self._groups.peek(config.group_name)
        if known is None and not is_group_name(config.group_name):
            raise UsageError(
                f"the group's name is {config.group_name[:64]!r}; {GROUP_SIZE_MAX} of the letters "
                f"{NAME_LETTERS} are allowed"
            )
        changes: dict[str, str] = {
            (name if name[:1] in "+-" else f"+{name}"): value
            for name, value in config.attributes.items()
        }
        config.attributes = merge_attributes(
            known.attributes if known else {}, changes, is_new=known is None
        )
        self._groups.put(config, now_ms)

    def all_groups(self, asked: Asked[None]) -> Reply:
        """Every group's configuration."""
        body = fastjson.encode(_without_nulls(msgspec.to_builtins(self._groups.file())))
        return Answer(body=body)

    def delete_group(self, asked: Asked[DeleteGroupHeader]) -> Reply:
        """Forget a group, and its offsets when asked."""
        header = asked.header
        self._groups.delete(header.group_name, asked.now_ms)
        if header.clean_offset:
            self._offsets.forget_group(header.group_name)
        if self._settings.creates_groups:
            retry = Topic.RETRY_PREFIX + header.group_name
            if header.group_name not in self._clients.consumers:
                self._topics.delete(retry, asked.now_ms)
        return DONE

    def get_group(self, asked: Asked[GroupHeader]) -> Reply:
        """One group's configuration; asking creates it where groups may be created."""
        config = self._groups.get(asked.header.group, asked.now_ms)
        if config is None:
            return Refusal(Response.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        body = fastjson.encode(_without_nulls(msgspec.to_builtins(config)))
        return Answer(body=body)

    def forbid(self, asked: Asked[GroupTopicHeader]) -> Reply:
        """Let a group read a topic, or not; without a wish, tell which."""
        header = asked.header
        groups = self._groups
        if header.readable is False and not self._settings.places_as_rocketmq:
            # RocketMQ keeps what it is told of any name.
            if groups.peek(header.group) is None:
                remark = f"Group {header.group} not exist!"
                return Refusal(Response.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
            if self._topics.get(header.topic) is None:
                remark = f"Topic {header.topic} not exist!"
                return Refusal(Response.TOPIC_NOT_EXIST, remark)
        if header.readable is not None:
            groups.forbid(
                header.group, header.topic, is_readable=header.readable, now_ms=asked.now_ms
            )
        answer = {
            "group": header.group,
            "readable": not groups.is_forbidden(header.group, header.topic),
            "topic": header.topic,
        }
        return Answer(body=fastjson.encode(answer), remark="")


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 - JSON is what it is
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    return value
