"""What a request needs of a user of ACL 2.0: rights to topics, groups, and the cluster.

Requests of clients need the same topics and groups as with ACL 1.0 (needs.py), found by what is
stored; requests of operators need what RocketMQ 5.3.3 asks for where it asks, and else the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from escrowmq.acl.accounts import ANY, PUB, SUB
from escrowmq.acl.needs import Admin, Need, Places, needs_of
from escrowmq.acl.policies import Access, Action, Kind, Resource
from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.base.message import Topic
from escrowmq.codec.bodies import HeartbeatBody, LockBody, decode_body

Actions = frozenset[Action]

_PUB: Final = frozenset({Action.PUB})
_SUB: Final = frozenset({Action.SUB})
_GET: Final = frozenset({Action.GET})
_CREATE: Final = frozenset({Action.CREATE})
_UPDATE: Final = frozenset({Action.UPDATE})
_DELETE: Final = frozenset({Action.DELETE})
_SUB_GET: Final = frozenset({Action.SUB, Action.GET})
_SUB_UPDATE: Final = frozenset({Action.SUB, Action.UPDATE})
_CREATE_UPDATE: Final = frozenset({Action.CREATE, Action.UPDATE})
_R: Final = Request


def topic_access(topic: str, actions: Actions) -> Access:
    """Rights to a topic; a retry topic is its group."""
    if topic.startswith(Topic.RETRY_PREFIX):
        return group_access(topic, actions)
    return Access(Resource(Kind.TOPIC, topic), actions)


def group_access(group: str, actions: Actions) -> Access:
    """Rights to a group, by its name or that of its retry topic."""
    return Access(Resource(Kind.GROUP, group.removeprefix(Topic.RETRY_PREFIX)), actions)


def cluster_access(cluster: str, actions: Actions) -> Access:
    """Rights to the cluster."""
    return Access(Resource(Kind.CLUSTER, cluster), actions)


# -- fields of operators' requests ---------------------------------------------------------------


class Fields(msgspec.Struct, frozen=True):
    """Rights to whatever is named in some fields, in their order."""

    actions: Actions
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    groups_first: bool = True
    lists: Mapping[str, str] = {}
    """Fields with several names, and what stands between these."""

    def read(self, ext: Mapping[str, str]) -> Iterator[Access]:
        """What is needed; nothing of fields that are absent."""
        order: list[tuple[str, Callable[[str, Actions], Access]]]
        order = [(name, group_access) for name in self.groups]
        at = len(order) if self.groups_first else 0
        order[at:at] = [(name, topic_access) for name in self.topics]
        for name, make in order:
            value = ext.get(name)
            if value is None:
                continue
            separator = self.lists.get(name)
            for each in value.split(separator) if separator else [value]:
                if each or not separator:
                    yield make(each, self.actions)


def _fields(
    actions: Actions, *, groups: str = "", topics: str = "", groups_first: bool = True
) -> Fields:
    return Fields(actions, tuple(topics.split()), tuple(groups.split()), groups_first)


OPERATIONS: Final[dict[int, Fields]] = {
    _R.UPDATE_AND_CREATE_TOPIC: _fields(_CREATE, topics="topic"),
    _R.DELETE_TOPIC_IN_BROKER: _fields(_DELETE, topics="topic"),
    _R.DELETE_SUBSCRIPTIONGROUP: _fields(_DELETE, groups="groupName"),
    _R.SEARCH_OFFSET_BY_TIMESTAMP: _fields(_GET, topics="topic"),
    _R.GET_MAX_OFFSET: _fields(_GET, topics="topic"),
    _R.GET_MIN_OFFSET: _fields(_GET, topics="topic"),
    _R.GET_EARLIEST_MSG_STORETIME: _fields(_GET, topics="topic"),
    _R.GET_TOPIC_STATS_INFO: _fields(_GET, topics="topic"),
    _R.GET_TOPIC_CONFIG: _fields(_GET, topics="topic"),
    _R.QUERY_TOPIC_CONSUME_BY_WHO: _fields(_GET, topics="topic"),
    _R.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: _fields(_GET, topics="topic"),
    _R.GET_CONSUMER_CONNECTION_LIST: _fields(_GET, groups="consumerGroup"),
    _R.GET_CONSUMER_RUNNING_INFO: _fields(_GET, groups="consumerGroup"),
    _R.QUERY_TOPICS_BY_CONSUMER: _fields(_GET, groups="group"),
    _R.GET_SUBSCRIPTIONGROUP_CONFIG: _fields(_GET, groups="group"),
    _R.GET_CONSUME_STATS: Fields(
        _GET, ("topic", "topicList"), ("consumerGroup",), lists={"topicList": ";"}
    ),
    _R.QUERY_SUBSCRIPTION_BY_CONSUMER: _fields(_GET, groups="group", topics="topic"),
    _R.QUERY_CONSUME_TIME_SPAN: _fields(_GET, groups="group", topics="topic", groups_first=False),
    _R.INVOKE_BROKER_TO_RESET_OFFSET: _fields(_UPDATE, groups="group", topics="topic"),
    _R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _fields(
        _GET, groups="group", topics="topic", groups_first=False
    ),
    _R.QUERY_CORRECTION_OFFSET: Fields(
        _GET, ("topic",), ("filterGroups", "compareGroup"), lists={"filterGroups": ","}
    ),
    _R.CLONE_GROUP_OFFSET: _fields(_UPDATE, groups="destGroup", topics="topic"),
    _R.QUERY_CONSUME_QUEUE: _fields(
        _GET, groups="consumerGroup", topics="topic", groups_first=False
    ),
    _R.UPDATE_AND_GET_GROUP_FORBIDDEN: _fields(_UPDATE, groups="group", topics="topic"),
}
"""What the annotations of the peer's header classes say (5.3.3); but what finds a message by an id
of its own, whatever topic is named beside it, is for operators here."""

_LOOKS: Final = frozenset(
    {
        _R.GET_ALL_TOPIC_CONFIG, _R.GET_BROKER_CONFIG, _R.GET_BROKER_RUNTIME_INFO,
        _R.GET_ALL_CONSUMER_OFFSET, _R.GET_ALL_DELAY_OFFSET, _R.GET_BROKER_CLUSTER_ACL_INFO,
        _R.GET_BROKER_CLUSTER_ACL_CONFIG, _R.GET_TIMER_CHECK_POINT, _R.GET_TIMER_METRICS,
        _R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, _R.GET_PRODUCER_CONNECTION_LIST,
        _R.GET_ALL_PRODUCER_INFO, _R.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, _R.VIEW_BROKER_STATS_DATA,
        _R.GET_BROKER_CONSUME_STATS, _R.EXPORT_ROCKSDB_CONFIG_TO_JSON,
        _R.GET_ALL_MESSAGE_REQUEST_MODE, _R.GET_BROKER_HA_STATUS, _R.GET_BROKER_EPOCH_CACHE,
        _R.GET_COLD_DATA_FLOW_CTR_INFO, _R.AUTH_GET_USER, _R.AUTH_LIST_USER, _R.AUTH_GET_ACL,
        _R.AUTH_LIST_ACL, _R.ESCROW_PENDING_LIST, _R.ESCROW_PENDING_COUNT, _R.ESCROW_SHOW,
        _R.ESCROW_DISCARDED_LIST, _R.ESCROW_ACL_EXPLAIN,
    }
)  # fmt: skip
"""Operators' requests that change nothing: Get on the cluster. All others need Update."""


class _GroupBody(msgspec.Struct, rename="camel"):
    group_name: str


class _GroupsBody(msgspec.Struct, rename="camel"):
    group_config_list: list[_GroupBody]


class _TopicBody(msgspec.Struct, rename="camel"):
    topic_name: str


class _TopicsBody(msgspec.Struct, rename="camel"):
    topic_config_list: list[_TopicBody]


def _new_group(request: Command) -> Iterable[Access]:
    return (group_access(decode_body(_GroupBody, request.body).group_name, _CREATE_UPDATE),)


def _new_groups(request: Command) -> Iterable[Access]:
    body = decode_body(_GroupsBody, request.body)
    return [group_access(one.group_name, _CREATE_UPDATE) for one in body.group_config_list]


def _new_topics(request: Command) -> Iterable[Access]:
    body = decode_body(_TopicsBody, request.body)
    return [topic_access(one.topic_name, _CREATE) for one in body.topic_config_list]


_BODIES: Final[dict[int, Callable[[Command], Iterable[Access]]]] = {
    _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _new_group,
    _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _new_groups,
    _R.UPDATE_AND_CREATE_TOPIC_LIST: _new_topics,
}

# -- what requests of clients need ---------------------------------------------------------------

_RIGHTS: Final = {PUB: _PUB, SUB: _SUB, ANY: _GET}

_OTHERWISE: Final[dict[int, Actions]] = {
    _R.QUERY_MESSAGE: _SUB_GET,
    _R.VIEW_MESSAGE_BY_ID: _GET,
    _R.QUERY_CONSUMER_OFFSET: _SUB_GET,
    _R.UPDATE_CONSUMER_OFFSET: _SUB_UPDATE,
    _R.GET_CONSUMER_LIST_BY_GROUP: _SUB_GET,
    _R.POLLING_INFO: _GET,
}
"""Requests for which the peer takes other rights than Pub and Sub."""


def _as_access(need: Need, code: int) -> Access:
    return topic_access(need.resource, _OTHERWISE.get(code) or _RIGHTS[need.right])


def accesses_of(request: Command, places: Places, *, cluster: str) -> list[Access]:
    """What a request needs, by what is stored; the cluster when it names nothing."""
    code = request.code
    found: list[Access] = []
    if code in _BODIES:
        found = list(_BODIES[code](request))
    elif code in OPERATIONS:
        found = list(OPERATIONS[code].read(request.ext or {}))
    else:
        needs = needs_of(request, places, as_peer=False)
        if isinstance(needs, Admin):
            found = [_as_access(need, code) for need in needs.needs]
        elif not needs:
            return []
        else:
            found = [_as_access(need, code) for need in needs]
    # An empty name is nobody's; only who may do everything to the cluster may ask about it.
    if found and all(access.resource.name for access in found):
        return found
    return [cluster_access(cluster, _GET if code in _LOOKS else _UPDATE)]


# -- what the peer asks for ----------------------------------------------------------------------


def _peer_send(topic_field: str, group_field: str) -> Callable[[Command], Iterable[Access]]:
    """A send to a retry topic is judged by the producer's group, if it names one."""

    def read(request: Command) -> Iterable[Access]:
        ext = request.ext or {}
        topic = ext.get(topic_field, "")
        if topic.startswith(Topic.RETRY_PREFIX):
            named = ext.get(group_field, "")
            return (group_access(named if named.strip() else topic, _SUB),)
        return (topic_access(topic, _PUB),)

    return read


def _peer_end(request: Command) -> Iterable[Access]:
    topic = (request.ext or {}).get("topic", "")
    return (Access(Resource(Kind.TOPIC, topic), _PUB),) if topic.strip() else ()


def _peer_topic(actions: Actions) -> Callable[[Command], Iterable[Access]]:
    """A topic by its own name, even a retry topic's."""

    def read(request: Command) -> Iterable[Access]:
        topic = (request.ext or {}).get("topic", "")
        return (Access(Resource(Kind.TOPIC, topic), actions),)

    return read


def _peer_read(actions: Actions) -> Callable[[Command], Iterable[Access]]:
    def read(request: Command) -> Iterable[Access]:
        ext = request.ext or {}
        topic = ext.get("topic", "")
        if not topic.startswith(Topic.RETRY_PREFIX):
            yield topic_access(topic, actions)
        yield group_access(ext.get("consumerGroup", ""), actions)

    return read


def _peer_heartbeat(request: Command) -> Iterable[Access]:
    for consumer in decode_body(HeartbeatBody, request.body).consumers or ():
        yield group_access(consumer.group_name, _SUB)
        for subscription in consumer.subscription_data_set or ():
            if not subscription.topic.startswith(Topic.RETRY_PREFIX):
                yield topic_access(subscription.topic, _SUB)


def _peer_lock(request: Command) -> Iterable[Access]:
    body = decode_body(LockBody, request.body)
    yield group_access(body.consumer_group, _SUB)
    for queue in body.mq_set:
        if not queue.topic.startswith(Topic.RETRY_PREFIX):
            yield topic_access(queue.topic, _SUB)


def _peer_leave(request: Command) -> Iterable[Access]:
    group = (request.ext or {}).get("consumerGroup", "")
    return (group_access(group, _SUB),) if group.strip() else ()


_PEER: Final[dict[int, Callable[[Command], Iterable[Access]]]] = {
    _R.SEND_MESSAGE: _peer_send("topic", "group"),
    _R.SEND_MESSAGE_V2: _peer_send("b", "a"),
    _R.SEND_BATCH_MESSAGE: _peer_send("b", "a"),
    _R.END_TRANSACTION: _peer_end,
    _R.RECALL_MESSAGE: _peer_topic(_PUB),
    _R.QUERY_MESSAGE: _peer_topic(_SUB_GET),
    _R.PULL_MESSAGE: _peer_read(_SUB),
    _R.HEART_BEAT: _peer_heartbeat,
    _R.UNREGISTER_CLIENT: _peer_leave,
    _R.QUERY_CONSUMER_OFFSET: _peer_read(_SUB_GET),
    _R.UPDATE_CONSUMER_OFFSET: _peer_read(_SUB_UPDATE),
    _R.LOCK_BATCH_MQ: _peer_lock,
    _R.UNLOCK_BATCH_MQ: _peer_lock,
}

_PEER_FIELDS: Final[dict[int, Fields]] = {
    **OPERATIONS,
    _R.RESUME_CHECK_HALF_MESSAGE: _fields(_UPDATE, topics="topic"),
    _R.CONSUME_MESSAGE_DIRECTLY: _fields(_SUB, groups="consumerGroup", topics="topic"),
    _R.CONSUMER_SEND_MSG_BACK: _fields(_SUB, groups="group"),
    _R.VIEW_MESSAGE_BY_ID: _fields(_GET, topics="topic"),
    _R.GET_CONSUMER_LIST_BY_GROUP: _fields(_SUB_GET, groups="consumerGroup"),
    **dict.fromkeys(
        (_R.POP_MESSAGE, _R.ACK_MESSAGE, _R.CHANGE_MESSAGE_INVISIBLETIME, _R.NOTIFICATION),
        _fields(_SUB, groups="consumerGroup", topics="topic"),
    ),
    _R.PEEK_MESSAGE: _fields(_SUB, groups="consumerGroup", topics="topic", groups_first=False),
    _R.POLLING_INFO: _fields(_GET, groups="consumerGroup", topics="topic"),
}

_PEER_CLUSTER: Final[dict[int, Actions]] = {
    **dict.fromkeys(
        (
            _R.GET_PRODUCER_CONNECTION_LIST, _R.VIEW_BROKER_STATS_DATA,
            _R.GET_BROKER_CONSUME_STATS, _R.GET_ALL_PRODUCER_INFO,
            _R.EXPORT_ROCKSDB_CONFIG_TO_JSON, _R.AUTH_GET_USER, _R.AUTH_LIST_USER,
            _R.AUTH_GET_ACL, _R.AUTH_LIST_ACL,
        ),
        _GET,
    ),
    **dict.fromkeys(
        (
            _R.NOTIFY_MIN_BROKER_ID_CHANGE, _R.EXCHANGE_BROKER_HA_INFO,
            _R.RESET_MASTER_FLUSH_OFFSET, _R.NOTIFY_BROKER_ROLE_CHANGED, _R.AUTH_CREATE_USER,
            _R.AUTH_UPDATE_USER, _R.AUTH_DELETE_USER, _R.AUTH_CREATE_ACL, _R.AUTH_UPDATE_ACL,
            _R.AUTH_DELETE_ACL,
        ),
        _UPDATE,
    ),
}  # fmt: skip


def peer_accesses_of(request: Command, *, cluster: str) -> list[Access]:
    """What RocketMQ 5.3.3 asks for (DefaultAuthorizationContextBuilder): nothing of requests that
    it knows no rule for, and nothing of what is stored. RemoteProtocolError when a body cannot be
    read."""
    code = request.code
    if code in _PEER:
        return list(_PEER[code](request))
    if code in _PEER_FIELDS:
        return list(_PEER_FIELDS[code].read(request.ext or {}))
    actions = _PEER_CLUSTER.get(code)
    return [] if actions is None else [cluster_access(cluster, actions)]
