"""The rights that RocketMQ requires, and no more, for brokers that should accept whatever RocketMQ
accepts.

Keyed by request codes and read from the raw fields, as RocketMQ does. Our own requests have no
place here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from escrowmq.acl import acl1_accounts
from escrowmq.acl.acl2_accesses import (
    CREATE,
    DELETE,
    GET,
    PUB,
    SUB,
    SUB_GET,
    SUB_UPDATE,
    UPDATE,
    Actions,
    FieldAccesses,
    cluster_access,
    field_accesses,
    group_access,
    topic_access,
)
from escrowmq.acl.acl2_policies import Access, Resource, ResourceKind
from escrowmq.acl.request_needs import (
    ADMIN,
    GROUP,
    READ,
    AdminNeeded,
    Need,
    ReadNeeds,
    group_resource,
    heartbeat_needs,
    needs_if_present,
    topic_field_needs,
)
from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.base.message import Topic
from escrowmq.codec.client_bodies import HeartbeatBody, LockBody, decode_body

_R: Final = Request

# -- ACL 1.0 -------------------------------------------------------------------------------------


def _send_back_needs(request: Command) -> Iterable[Need]:
    return (Need(group_resource((request.ext or {}).get("group", "")), acl1_accounts.SUB),)


_STATIC_TOPIC: Final = 513

_NEEDS: Final[dict[int, AdminNeeded | ReadNeeds]] = {
    _R.SEND_BATCH_MESSAGE: topic_field_needs("b", acl1_accounts.PUB),
    _R.PULL_MESSAGE: READ,
    _R.UPDATE_CONSUMER_OFFSET: READ,
    _R.QUERY_MESSAGE: topic_field_needs("topic", acl1_accounts.SUB),
    _R.HEART_BEAT: heartbeat_needs,
    _R.UNREGISTER_CLIENT: needs_if_present(GROUP, "consumerGroup"),
    _R.GET_CONSUMER_LIST_BY_GROUP: GROUP,
    _R.SEND_MESSAGE: topic_field_needs("topic", acl1_accounts.PUB),
    _R.SEND_MESSAGE_V2: topic_field_needs("b", acl1_accounts.PUB),
    _R.CONSUMER_SEND_MSG_BACK: _send_back_needs,
    **dict.fromkeys(
        (
            _R.UPDATE_AND_CREATE_TOPIC, _R.UPDATE_BROKER_CONFIG, _R.DELETE_TOPIC_IN_BROKER,
            _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, _R.DELETE_SUBSCRIPTIONGROUP, _STATIC_TOPIC,
            _R.UPDATE_AND_CREATE_ACL_CONFIG, _R.DELETE_ACL_CONFIG, _R.GET_BROKER_CLUSTER_ACL_INFO,
        ),
        ADMIN,
    ),
}  # fmt: skip
"""By request code: the needs that PlainAccessResource and Permission of RocketMQ 5.3.2 have. Any
account may make all other requests."""


def rocketmq_needs(request: Command) -> AdminNeeded | list[Need]:
    """Return the rights that RocketMQ 5.3.2 requires of an account."""
    rule = _NEEDS.get(request.code)
    if rule is None:
        return []
    return rule if isinstance(rule, AdminNeeded) else list(rule(request))


# -- ACL 2.0 -------------------------------------------------------------------------------------

_OPERATIONS: Final[dict[int, FieldAccesses]] = {
    _R.UPDATE_AND_CREATE_TOPIC: field_accesses(CREATE, topics="topic"),
    _R.DELETE_TOPIC_IN_BROKER: field_accesses(DELETE, topics="topic"),
    _R.DELETE_SUBSCRIPTIONGROUP: field_accesses(DELETE, groups="groupName"),
    _R.SEARCH_OFFSET_BY_TIMESTAMP: field_accesses(GET, topics="topic"),
    _R.GET_MAX_OFFSET: field_accesses(GET, topics="topic"),
    _R.GET_MIN_OFFSET: field_accesses(GET, topics="topic"),
    _R.GET_EARLIEST_MSG_STORETIME: field_accesses(GET, topics="topic"),
    _R.GET_TOPIC_STATS_INFO: field_accesses(GET, topics="topic"),
    _R.GET_TOPIC_CONFIG: field_accesses(GET, topics="topic"),
    _R.QUERY_TOPIC_CONSUME_BY_WHO: field_accesses(GET, topics="topic"),
    _R.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: field_accesses(GET, topics="topic"),
    _R.GET_CONSUMER_CONNECTION_LIST: field_accesses(GET, groups="consumerGroup"),
    _R.GET_CONSUMER_RUNNING_INFO: field_accesses(GET, groups="consumerGroup"),
    _R.QUERY_TOPICS_BY_CONSUMER: field_accesses(GET, groups="group"),
    _R.GET_SUBSCRIPTIONGROUP_CONFIG: field_accesses(GET, groups="group"),
    _R.GET_CONSUME_STATS: FieldAccesses(
        GET, ("topic", "topicList"), ("consumerGroup",), lists={"topicList": ";"}
    ),
    _R.QUERY_SUBSCRIPTION_BY_CONSUMER: field_accesses(GET, groups="group", topics="topic"),
    _R.QUERY_CONSUME_TIME_SPAN: field_accesses(
        GET, groups="group", topics="topic", groups_first=False
    ),
    _R.INVOKE_BROKER_TO_RESET_OFFSET: field_accesses(UPDATE, groups="group", topics="topic"),
    _R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: field_accesses(
        GET, groups="group", topics="topic", groups_first=False
    ),
    _R.QUERY_CORRECTION_OFFSET: FieldAccesses(
        GET, ("topic",), ("filterGroups", "compareGroup"), lists={"filterGroups": ","}
    ),
    _R.CLONE_GROUP_OFFSET: field_accesses(UPDATE, groups="destGroup", topics="topic"),
    _R.QUERY_CONSUME_QUEUE: field_accesses(
        GET, groups="consumerGroup", topics="topic", groups_first=False
    ),
    _R.UPDATE_AND_GET_GROUP_FORBIDDEN: field_accesses(UPDATE, groups="group", topics="topic"),
}
"""By code of operators' requests: the rights in the annotations of RocketMQ's header classes."""


def _send_accesses(topic_field: str, group_field: str) -> Callable[[Command], Iterable[Access]]:
    """Return a reader for sends. A send to a retry topic needs the right of the producer's group,
    if it names one."""

    def read(request: Command) -> Iterable[Access]:
        ext = request.ext or {}
        topic = ext.get(topic_field, "")
        if topic.startswith(Topic.RETRY_PREFIX):
            named = ext.get(group_field, "")
            return (group_access(named if named.strip() else topic, SUB),)
        return (topic_access(topic, PUB),)

    return read


def _end_accesses(request: Command) -> Iterable[Access]:
    topic = (request.ext or {}).get("topic", "")
    return (Access(Resource(ResourceKind.TOPIC, topic), PUB),) if topic.strip() else ()


def _topic_accesses(actions: Actions) -> Callable[[Command], Iterable[Access]]:
    """Return a reader for a topic under its own name, even if it is a retry topic."""

    def read(request: Command) -> Iterable[Access]:
        topic = (request.ext or {}).get("topic", "")
        return (Access(Resource(ResourceKind.TOPIC, topic), actions),)

    return read


def _topic_and_group_accesses(actions: Actions) -> Callable[[Command], Iterable[Access]]:
    def read(request: Command) -> Iterable[Access]:
        ext = request.ext or {}
        topic = ext.get("topic", "")
        if not topic.startswith(Topic.RETRY_PREFIX):
            yield topic_access(topic, actions)
        yield group_access(ext.get("consumerGroup", ""), actions)

    return read


def _heartbeat_accesses(request: Command) -> Iterable[Access]:
    for consumer in decode_body(HeartbeatBody, request.body).consumers or ():
        yield group_access(consumer.group_name, SUB)
        for subscription in consumer.subscription_data_set or ():
            if not subscription.topic.startswith(Topic.RETRY_PREFIX):
                yield topic_access(subscription.topic, SUB)


def _lock_accesses(request: Command) -> Iterable[Access]:
    body = decode_body(LockBody, request.body)
    yield group_access(body.consumer_group, SUB)
    for queue in body.mq_set:
        if not queue.topic.startswith(Topic.RETRY_PREFIX):
            yield topic_access(queue.topic, SUB)


def _unregister_accesses(request: Command) -> Iterable[Access]:
    group = (request.ext or {}).get("consumerGroup", "")
    return (group_access(group, SUB),) if group.strip() else ()


_READERS: Final[dict[int, Callable[[Command], Iterable[Access]]]] = {
    _R.SEND_MESSAGE: _send_accesses("topic", "group"),
    _R.SEND_MESSAGE_V2: _send_accesses("b", "a"),
    _R.SEND_BATCH_MESSAGE: _send_accesses("b", "a"),
    _R.END_TRANSACTION: _end_accesses,
    _R.RECALL_MESSAGE: _topic_accesses(PUB),
    _R.QUERY_MESSAGE: _topic_accesses(SUB_GET),
    _R.PULL_MESSAGE: _topic_and_group_accesses(SUB),
    _R.HEART_BEAT: _heartbeat_accesses,
    _R.UNREGISTER_CLIENT: _unregister_accesses,
    _R.QUERY_CONSUMER_OFFSET: _topic_and_group_accesses(SUB_GET),
    _R.UPDATE_CONSUMER_OFFSET: _topic_and_group_accesses(SUB_UPDATE),
    _R.LOCK_BATCH_MQ: _lock_accesses,
    _R.UNLOCK_BATCH_MQ: _lock_accesses,
}

_FIELDS: Final[dict[int, FieldAccesses]] = {
    **_OPERATIONS,
    _R.RESUME_CHECK_HALF_MESSAGE: field_accesses(UPDATE, topics="topic"),
    _R.CONSUME_MESSAGE_DIRECTLY: field_accesses(SUB, groups="consumerGroup", topics="topic"),
    _R.CONSUMER_SEND_MSG_BACK: field_accesses(SUB, groups="group"),
    _R.VIEW_MESSAGE_BY_ID: field_accesses(GET, topics="topic"),
    _R.GET_CONSUMER_LIST_BY_GROUP: field_accesses(SUB_GET, groups="consumerGroup"),
    **dict.fromkeys(
        (_R.POP_MESSAGE, _R.ACK_MESSAGE, _R.CHANGE_MESSAGE_INVISIBLETIME, _R.NOTIFICATION),
        field_accesses(SUB, groups="consumerGroup", topics="topic"),
    ),
    _R.PEEK_MESSAGE: field_accesses(
        SUB, groups="consumerGroup", topics="topic", groups_first=False
    ),
    _R.POLLING_INFO: field_accesses(GET, groups="consumerGroup", topics="topic"),
}

_CLUSTER: Final[dict[int, Actions]] = {
    **dict.fromkeys(
        (
            _R.GET_PRODUCER_CONNECTION_LIST, _R.VIEW_BROKER_STATS_DATA,
            _R.GET_BROKER_CONSUME_STATS, _R.GET_ALL_PRODUCER_INFO,
            _R.EXPORT_ROCKSDB_CONFIG_TO_JSON, _R.AUTH_GET_USER, _R.AUTH_LIST_USER,
            _R.AUTH_GET_ACL, _R.AUTH_LIST_ACL,
        ),
        GET,
    ),
    **dict.fromkeys(
        (
            _R.NOTIFY_MIN_BROKER_ID_CHANGE, _R.EXCHANGE_BROKER_HA_INFO,
            _R.RESET_MASTER_FLUSH_OFFSET, _R.NOTIFY_BROKER_ROLE_CHANGED, _R.AUTH_CREATE_USER,
            _R.AUTH_UPDATE_USER, _R.AUTH_DELETE_USER, _R.AUTH_CREATE_ACL, _R.AUTH_UPDATE_ACL,
            _R.AUTH_DELETE_ACL,
        ),
        UPDATE,
    ),
}  # fmt: skip


def rocketmq_accesses(request: Command, *, cluster: str) -> list[Access]:
    """Return the accesses that RocketMQ 5.3.3 requires (DefaultAuthorizationContextBuilder): none
    for requests for which it has no rule, and none that depend on stored data. Raises
    RemoteProtocolError if a body cannot be parsed."""
    code = request.code
    if code in _READERS:
        return list(_READERS[code](request))
    if code in _FIELDS:
        return list(_FIELDS[code](request))
    actions = _CLUSTER.get(code)
    return [] if actions is None else [cluster_access(cluster, actions)]
