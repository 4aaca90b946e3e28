"""Administration of consumer groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from escrowmq.base.answer import DONE, Answer, Refusal, Reply
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Response
from escrowmq.base.fixed_limits import GROUP_SIZE_MAX, INT_MAX, TOPIC_QUEUES_MAX
from escrowmq.base.message import Topic
from escrowmq.base.names import NAME_LETTERS
from escrowmq.broker.incoming_request import IncomingRequest
from escrowmq.codec import fastjson
from escrowmq.codec.client_bodies import decode_body
from escrowmq.codec.headers import DeleteGroupHeader, GroupHeader, GroupTopicHeader
from escrowmq.delivery.clients import Clients
from escrowmq.delivery.groups import GroupConfig, GroupTable, is_group_name
from escrowmq.delivery.offsets import OffsetTable
from escrowmq.delivery.topics import TopicTable, merge_attributes
from escrowmq.errors import UsageError


class _GroupListBody(msgspec.Struct, rename="camel"):
    group_config_list: list[GroupConfig]


class GroupHandlers:
    """Serves requests to manage consumer groups (codes 200, 201, 207, 225, 352, 353)."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        clients: Clients,
        forgetters: tuple[Callable[[str], None], ...],
    ) -> None:
        """`forgetters` are called with the name of a deleted group, so that each part of the broker
        drops what it knows about it."""
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._clients = clients
        self._forgetters = forgetters

    def put_group(self, request: IncomingRequest[None]) -> Reply:
        """Create a consumer group or change it."""
        config = decode_body(GroupConfig, request.body)
        self._apply_attributes(config)
        self._groups.put(config, request.now_ms)
        return DONE

    def put_groups(self, request: IncomingRequest[None]) -> Reply:
        """Create or change several consumer groups; none if one is refused."""
        configs = decode_body(_GroupListBody, request.body).group_config_list
        for config in configs:
            self._apply_attributes(config)
        for config in configs:
            self._groups.put(config, request.now_ms)
        return DONE

    def _apply_attributes(self, config: GroupConfig) -> None:
        """Apply attributes to a configuration. Raises UsageError if it is invalid."""
        if not 0 <= config.retry_queue_nums <= TOPIC_QUEUES_MAX:
            raise UsageError(
                f"retryQueueNums is {config.retry_queue_nums}; 0 to {TOPIC_QUEUES_MAX} are allowed"
            )
        if not -INT_MAX <= config.retry_max_times <= INT_MAX:
            raise UsageError(f"retryMaxTimes is {config.retry_max_times}; {INT_MAX} are allowed")
        known = self._groups.find(config.group_name)
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

    def all_groups(self, request: IncomingRequest[None]) -> Reply:
        """Answer with every group's configuration."""
        body = fastjson.encode(_without_nulls(msgspec.to_builtins(self._groups.file())))
        return Answer(body=body)

    def delete_group(self, request: IncomingRequest[DeleteGroupHeader]) -> Reply:
        """Delete a group, and its offsets if requested."""
        header = request.header
        self._groups.delete(header.group_name, request.now_ms)
        for forget in self._forgetters:
            forget(header.group_name)
        if header.clean_offset:
            self._offsets.forget_group(header.group_name)
        if self._settings.creates_groups:
            retry = Topic.RETRY_PREFIX + header.group_name
            if header.group_name not in self._clients.consumers:
                self._topics.delete(retry, request.now_ms)
        return DONE

    def get_group(self, request: IncomingRequest[GroupHeader]) -> Reply:
        """Answer with one group's configuration; create the group first where groups may be created
        by use."""
        config = self._groups.get_or_create(request.header.group, request.now_ms)
        if config is None:
            return Refusal(Response.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        body = fastjson.encode(_without_nulls(msgspec.to_builtins(config)))
        return Answer(body=body)

    def forbid_reading(self, request: IncomingRequest[GroupTopicHeader]) -> Reply:
        """Allow or forbid a group to read a topic. Without a value, only answer with the present
        state."""
        header = request.header
        groups = self._groups
        if header.readable is False and not self._settings.places_as_rocketmq:
            # RocketMQ stores the value for any group name.
            if groups.find(header.group) is None:
                remark = f"Group {header.group} not exist!"
                return Refusal(Response.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
            if self._topics.get(header.topic) is None:
                remark = f"Topic {header.topic} not exist!"
                return Refusal(Response.TOPIC_NOT_EXIST, remark)
        if header.readable is not None:
            groups.forbid(
                header.group, header.topic, is_readable=header.readable, now_ms=request.now_ms
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
