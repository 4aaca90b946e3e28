"""Serves requests to manage topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from escrowmq.base.answer import DONE, Answer, Refusal, Reply
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import NOT_SET, Response
from escrowmq.base.fixed_limits import TOPIC_QUEUES_MAX
from escrowmq.base.message import Topic
from escrowmq.broker.incoming_request import IncomingRequest
from escrowmq.codec import fastjson
from escrowmq.codec.client_bodies import decode_body
from escrowmq.codec.headers import (
    CreateTopicHeader,
    TopicHeader,
)
from escrowmq.codec.pop_receipt import RETRY_V1, RETRY_V2, retry_topic
from escrowmq.delivery.clients import Clients
from escrowmq.delivery.offsets import OffsetTable
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

_NOT_NOTED: Final = (
    "the topic is deleted, and the disk has no space to note that: delete it again when it has, "
    "else its messages may be back after a restart"
)
_MIXED: Final = "MIXED"


class _TopicListBody(msgspec.Struct, rename="camel"):
    topic_config_list: list[TopicConfig]


class TopicHandlers:
    """Serves requests to manage topics (codes 17, 18, 21, 215, 305, 351)."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store: Store,
        topics: TopicTable,
        offsets: OffsetTable,
        clients: Clients,
        forgetters: tuple[Callable[[str], None], ...],
    ) -> None:
        """`forgetters` are called with the name of a deleted topic, so that each part of the broker
        drops what it knows about it."""
        self._settings = settings
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._clients = clients
        self._forgetters = forgetters

    def put_topic(self, request: IncomingRequest[CreateTopicHeader]) -> Reply:
        """Create a topic or change it."""
        header = request.header
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
        return self._put_topic(config, changes, request.now_ms)

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
        refusal = self._apply_attributes(config, changes)
        if refusal is not None:
            return refusal
        self._topics.put(config, now_ms)
        return Answer(remark=NOT_SET)

    def _apply_attributes(self, config: TopicConfig, changes: dict[str, str]) -> Refusal | None:
        """Check a topic's configuration and apply attribute changes to it. Return why it is
        invalid; None if it is valid."""
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

    def put_topics(self, request: IncomingRequest[None]) -> Reply:
        """Create or change several topics; none of them if any is refused."""
        configs = decode_body(_TopicListBody, request.body).topic_config_list
        for config in configs:
            changes = ",".join(
                f"{name if name[:1] in ('+', '-') else f'+{name}'}={value}"
                for name, value in config.attributes.items()
            )
            refusal = self._apply_attributes(config, parse_attributes(changes))
            if refusal is not None:
                return refusal
        for config in configs:
            self._topics.put(config, request.now_ms)
        return Answer(remark=NOT_SET)

    def all_topics(self, request: IncomingRequest[None]) -> Reply:
        """Answer with every topic's configuration."""
        file = msgspec.to_builtins(self._topics.file())
        file["mappingDataVersion"] = file["dataVersion"]
        file["topicQueueMappingDetailMap"] = {}
        file["topicQueueMappingInfoMap"] = {}
        ext = {"totalTopicNum": str(len(file["topicConfigTable"]))}
        return Answer(body=fastjson.encode(file), ext=ext)

    def delete_topic(self, request: IncomingRequest[TopicHeader]) -> Reply:
        """Delete a topic, its queues and its offsets."""
        name = request.header.topic
        if not name.strip():
            return Refusal(Response.INVALID_PARAMETER, "The specified topic is blank.")
        if self._settings.protects_system_topics and self._topics.is_system(name):
            return Refusal(
                Response.INVALID_PARAMETER, f"The topic[{name}] is conflict with system topic."
            )
        # If the master cannot record a deletion, the group's copies would keep the topic.
        fault = self._store.deletion_fault()
        if fault:
            remark = f"the topic[{name}] is not deleted: {fault}; make room, and delete it again"
            return Refusal(Response.SYSTEM_ERROR, remark)
        doomed = [name]
        if self._settings.clears_retry_topics:
            doomed += self._retry_topics(name)
        for topic in doomed:
            self._topics.delete(topic, request.now_ms)
            self._store.delete_topic(topic)
            for forget in self._forgetters:
                forget(topic)
        self._offsets.forget_topics(doomed)
        if not self._store.are_deletions_saved:
            # Not a Refusal, because most of the work is done.
            return Answer(Response.SYSTEM_ERROR, remark=_NOT_NOTED)
        return DONE

    def _retry_topics(self, name: str) -> list[str]:
        """Return the existing retry topics of groups that popped a topic. One whose name has the
        older form is left out if another group uses it too."""
        older_names = {
            group: retry_topic(name, group, RETRY_V1) for group in self._offsets.groups_of(name)
        }
        users = self._offsets.groups_by_topic(set(older_names.values()))
        found = []
        for group, older in older_names.items():
            found.append(retry_topic(name, group, RETRY_V2))
            others = users.get(older, set()) - {group}
            is_pulled = older.removeprefix(Topic.RETRY_PREFIX) in self._clients.consumers
            if not others and not is_pulled:
                found.append(older)
        return [topic for topic in found if self._topics.get(topic) is not None]

    def get_topic(self, request: IncomingRequest[TopicHeader]) -> Reply:
        """Answer with one topic's configuration."""
        name = request.header.topic
        config = self._topics.get(name)
        if config is None:
            return Refusal(Response.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {name}")
        return Answer(body=fastjson.encode(config))

    def system_topics(self, request: IncomingRequest[None]) -> Reply:
        """Answer with the topics that the broker creates for itself."""
        topics = self._topics
        names = [name for name in topics.names() if topics.is_system(name)]
        return Answer(body=fastjson.encode({"topicList": names}))
