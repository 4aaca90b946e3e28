"""What a request needs: one table of every request code (docs/security.md repeats it).

A code that is not in the table needs an administrator. What is stored decides over what is said:
an END needs the topic of the half that it ends, a view the topic of the message that it shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol

import msgspec

from escrowmq.acl.accounts import ANY, PUB, SUB
from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.base.extensions import EPOCH
from escrowmq.base.message import NOT_SENDABLE, Property, Topic
from escrowmq.codec.acks import decode_acks
from escrowmq.codec.bodies import CheckClientBody, HeartbeatBody, LockBody, decode_body
from escrowmq.codec.decision import Epoch
from escrowmq.codec.headers import RecallHeader, SendBackHeader, ViewHeader, read_header
from escrowmq.codec.properties import parse_properties
from escrowmq.codec.recall import decode_handle
from escrowmq.codec.receipt import normal_topic


class Need(msgspec.Struct, frozen=True):
    """A right to a topic, or to a group by the name of its retry topic."""

    resource: str
    right: int


class Places(Protocol):
    """What is stored, as far as rights depend on it."""

    @property
    def reply_topic(self) -> str:
        """The topic of replies to requests."""

    def asked_in(self, properties: Mapping[str, str]) -> str | None:
        """The topic of the request that a reply with these properties answers, if it is known."""

    def ended_topics(self, request: Command) -> Iterable[str]:
        """The topics of the messages that an END commits or rolls back."""

    def topic_at(self, log_offset: int) -> str | None:
        """The topic of the record at an offset of the log; None when there is none."""

    def has_topic(self, topic: str) -> bool:
        """Whether there is such a topic."""

    def has_offsets(self, group: str, topic: str) -> bool:
        """Whether a group has read, or is to read, a topic."""


Reader = Callable[[Command], Iterable[Need]]
"""Finds in a request what it needs."""


class Stored(msgspec.Struct, frozen=True):
    """Needs what is found with the help of what is stored."""

    read: Callable[[Command, Places], Iterable[Need]]


class Admin(msgspec.Struct, frozen=True):
    """Needs an administrator."""

    own_topic: str = ""
    """The topic of the broker's own that makes it so; empty when it is the request itself."""

    needs: tuple[Need, ...] = ()
    """What it would need if these were topics as others."""


ADMIN: Final = Admin()
Rule = Admin | Stored | Reader


def is_inner(topic: str) -> bool:
    """Whether a topic is the broker's own: what stands there is of any topic, and not out yet."""
    return topic in _INNER or topic.startswith(Topic.SYSTEM_PREFIX)


def begins_inner(beginning: str) -> bool:
    """Whether the beginning of names can only mean topics of the broker's own."""
    if len(beginning) < len(Topic.SYSTEM_PREFIX):
        return False
    return is_inner(beginning) or any(topic.startswith(beginning) for topic in _INNER)


_JOINT: Final = "+"
_OLDER_JOINT: Final = "_"
_INNER: Final = NOT_SENDABLE - {Topic.SELF_TEST}


def group_resource(group: str) -> str:
    """The name under which a group's rights are kept."""
    return Topic.RETRY_PREFIX + group


# -- readers of fields ---------------------------------------------------------------------------


def _nothing(_: Command) -> Iterable[Need]:
    return ()


def _field(name: str, right: int) -> Reader:
    """A right to the topic that a field names; a retry topic is read whatever is done to it."""

    def read(request: Command) -> Iterable[Need]:
        topic = (request.ext or {}).get(name, "")
        return (Need(topic, SUB if topic.startswith(Topic.RETRY_PREFIX) else right),)

    return read


def _group(name: str = "consumerGroup") -> Reader:
    def read(request: Command) -> Iterable[Need]:
        return (Need(group_resource((request.ext or {}).get(name, "")), SUB),)

    return read


def _given(reader: Reader, name: str) -> Reader:
    """What a field needs if it is there at all."""

    def read(request: Command) -> Iterable[Need]:
        return reader(request) if (request.ext or {}).get(name) else ()

    return read


def _all(*readers: Reader) -> Reader:
    def read(request: Command) -> Iterable[Need]:
        return [need for reader in readers for need in reader(request)]

    return read


_GROUP: Final = _group()
_READ: Final = _all(_GROUP, _field("topic", SUB))
_OF_GROUP: Final = _all(_group("group"), _field("topic", SUB))


# -- readers of bodies and of what is stored -----------------------------------------------------


def _popped(group: str, topic: str) -> Iterator[Need]:
    """A group, and a topic that it pops: its retry topic of a topic is that topic again."""
    yield Need(group_resource(group), SUB)
    normal = normal_topic(topic, group)
    if normal != group_resource(group):
        yield Need(normal, SUB)


def _acked(request: Command) -> Iterable[Need]:
    ext = request.ext or {}
    return _popped(ext.get("consumerGroup", ""), ext.get("topic", ""))


def _batch_acked(request: Command) -> Iterable[Need]:
    batches = decode_acks(request.body)
    return [need for batch in batches for need in _popped(batch.c, batch.t)]


def _heartbeat(request: Command) -> Iterable[Need]:
    body = decode_body(HeartbeatBody, request.body)
    for consumer in body.consumers or ():
        yield Need(group_resource(consumer.group_name), SUB)
        for subscription in consumer.subscription_data_set or ():
            yield Need(subscription.topic, SUB)


def _locked(request: Command) -> Iterable[Need]:
    body = decode_body(LockBody, request.body)
    yield Need(group_resource(body.consumer_group), SUB)
    for topic in {queue.topic for queue in body.mq_set}:
        yield Need(topic, SUB)


def _checked(request: Command) -> Iterable[Need]:
    body = decode_body(CheckClientBody, request.body)
    yield Need(group_resource(body.group), SUB)
    if body.subscription_data is not None:
        yield Need(body.subscription_data.topic, SUB)


class _Assignment(msgspec.Struct, rename="camel"):
    topic: str
    consumer_group: str


def _assigned(request: Command) -> Iterable[Need]:
    body = decode_body(_Assignment, request.body)
    return (Need(group_resource(body.consumer_group), SUB), Need(body.topic, SUB))


def _ended(request: Command, places: Places) -> Iterable[Need]:
    return [Need(topic, PUB) for topic in places.ended_topics(request)]


def _viewed(request: Command, places: Places) -> Iterable[Need]:
    """The topic of the message itself; of one that is gone, the topic that is asked for."""
    header = read_header(ViewHeader, request.ext)
    topic = places.topic_at(header.offset)
    return (Need(header.topic or "" if topic is None else topic, SUB),)


def _sent_back(request: Command, places: Places) -> Iterable[Need]:
    """A message that is sent back is read again: its own topic counts as well as the group."""
    header = read_header(SendBackHeader, request.ext)
    topic = places.topic_at(header.offset)
    # Of one that is gone the handler says so.
    return _popped(header.group, group_resource(header.group) if topic is None else topic)


def _recalled(request: Command) -> Iterable[Need]:
    header = read_header(RecallHeader, request.ext)
    return (Need(header.topic, PUB), Need(decode_handle(header.recall_handle).topic, PUB))


_OF_EPOCH: Final = f"{EPOCH}\x01"


def _sent(topic: str, properties: str) -> Reader:
    """PUB on the topic; a half of an epoch counts for whoever decides about it, and needs the same
    right to the group."""
    plain = _field(topic, PUB)

    def read(request: Command) -> Iterable[Need]:
        text = (request.ext or {}).get(properties, "")
        if _OF_EPOCH not in text:
            return plain(request)
        group = parse_properties(text).get(Property.PGROUP, "")
        return (*plain(request), Need(group_resource(group), PUB))

    return read


def _replied(name: str, properties: str) -> Stored:
    """PUB on the topic. Who answers a request may do that on the cluster's reply topic without,
    if he may read where it was asked."""
    plain = _field(name, PUB)

    def read(request: Command, places: Places) -> Iterable[Need]:
        ext = request.ext or {}
        if ext.get(name) == places.reply_topic:
            asked_in = places.asked_in(parse_properties(ext.get(properties, "")))
            if asked_in is not None:
                return (Need(asked_in, SUB),)
        return plain(request)

    return Stored(read)


def _decided(request: Command) -> Iterable[Need]:
    """A sink's group is the one that may decide; what it wrote was judged when it was sent."""
    group = decode_body(Epoch, request.body).group
    return (Need(group_resource(group), PUB),)


# -- the table -----------------------------------------------------------------------------------

_ANY_TOPIC: Final = _field("topic", ANY)
_R: Final = Request

NEEDS: Final[dict[int, Rule]] = {
    _R.SEND_MESSAGE: _sent("topic", "properties"),
    _R.SEND_MESSAGE_V2: _sent("b", "i"),
    _R.SEND_BATCH_MESSAGE: _field("b", PUB),
    _R.SEND_REPLY_MESSAGE: _replied("topic", "properties"),
    _R.SEND_REPLY_MESSAGE_V2: _replied("b", "i"),
    _R.RECALL_MESSAGE: _recalled,
    _R.END_TRANSACTION: Stored(_ended),
    **dict.fromkeys((_R.ESCROW_DECIDE, _R.ESCROW_ABANDON, _R.ESCROW_DECISION), _decided),
    _R.PULL_MESSAGE: _READ,
    _R.LITE_PULL_MESSAGE: _READ,
    _R.POP_MESSAGE: _READ,
    _R.PEEK_MESSAGE: _READ,
    _R.NOTIFICATION: _READ,
    _R.POLLING_INFO: _READ,
    _R.ACK_MESSAGE: _acked,
    _R.CHANGE_MESSAGE_INVISIBLETIME: _acked,
    _R.BATCH_ACK_MESSAGE: _batch_acked,
    _R.CONSUMER_SEND_MSG_BACK: Stored(_sent_back),
    _R.QUERY_MESSAGE: _field("topic", SUB),
    _R.VIEW_MESSAGE_BY_ID: Stored(_viewed),
    _R.QUERY_CONSUMER_OFFSET: _READ,
    _R.UPDATE_CONSUMER_OFFSET: _READ,
    _R.SEARCH_OFFSET_BY_TIMESTAMP: _ANY_TOPIC,
    _R.GET_MAX_OFFSET: _ANY_TOPIC,
    _R.GET_MIN_OFFSET: _ANY_TOPIC,
    _R.GET_EARLIEST_MSG_STORETIME: _ANY_TOPIC,
    _R.GET_TOPIC_STATS_INFO: _ANY_TOPIC,
    _R.GET_TOPIC_CONFIG: _ANY_TOPIC,
    _R.QUERY_TOPIC_CONSUME_BY_WHO: _ANY_TOPIC,
    _R.HEART_BEAT: _heartbeat,
    _R.UNREGISTER_CLIENT: _given(_GROUP, "consumerGroup"),
    _R.GET_CONSUMER_LIST_BY_GROUP: _GROUP,
    _R.GET_CONSUMER_CONNECTION_LIST: _GROUP,
    _R.GET_CONSUME_STATS: _all(_GROUP, _given(_field("topic", SUB), "topic")),
    _R.GET_SUBSCRIPTIONGROUP_CONFIG: _group("group"),
    _R.QUERY_TOPICS_BY_CONSUMER: _group("group"),
    _R.QUERY_SUBSCRIPTION_BY_CONSUMER: _OF_GROUP,
    _R.QUERY_CONSUME_TIME_SPAN: _OF_GROUP,
    _R.LOCK_BATCH_MQ: _locked,
    _R.UNLOCK_BATCH_MQ: _locked,
    _R.CHECK_CLIENT_CONFIG: _checked,
    _R.QUERY_ASSIGNMENT: _assigned,
    **dict.fromkeys(
        (
            _R.UPDATE_AND_CREATE_TOPIC, _R.UPDATE_AND_CREATE_TOPIC_LIST, _R.GET_ALL_TOPIC_CONFIG,
            _R.UPDATE_BROKER_CONFIG, _R.GET_BROKER_CONFIG, _R.GET_BROKER_RUNTIME_INFO,
            _R.GET_ALL_CONSUMER_OFFSET, _R.GET_ALL_DELAY_OFFSET,
            _R.UPDATE_AND_CREATE_ACL_CONFIG, _R.DELETE_ACL_CONFIG, _R.GET_BROKER_CLUSTER_ACL_INFO,
            _R.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, _R.GET_BROKER_CLUSTER_ACL_CONFIG,
            _R.GET_TIMER_CHECK_POINT, _R.GET_TIMER_METRICS,
            _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            _R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, _R.DELETE_SUBSCRIPTIONGROUP,
            _R.UPDATE_AND_GET_GROUP_FORBIDDEN, _R.DELETE_TOPIC_IN_BROKER,
            _R.GET_PRODUCER_CONNECTION_LIST, _R.GET_ALL_PRODUCER_INFO,
            _R.INVOKE_BROKER_TO_RESET_OFFSET, _R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            _R.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, _R.CLEAN_EXPIRED_CONSUMEQUEUE,
            _R.CLEAN_UNUSED_TOPIC, _R.DELETE_EXPIRED_COMMITLOG, _R.GET_CONSUMER_RUNNING_INFO,
            _R.CONSUME_MESSAGE_DIRECTLY, _R.QUERY_CORRECTION_OFFSET, _R.CLONE_GROUP_OFFSET,
            _R.VIEW_BROKER_STATS_DATA, _R.GET_BROKER_CONSUME_STATS, _R.QUERY_CONSUME_QUEUE,
            _R.RESUME_CHECK_HALF_MESSAGE, _R.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
            _R.EXPORT_ROCKSDB_CONFIG_TO_JSON, _R.SET_MESSAGE_REQUEST_MODE,
            _R.GET_ALL_MESSAGE_REQUEST_MODE, _R.NOTIFY_MIN_BROKER_ID_CHANGE,
            _R.EXCHANGE_BROKER_HA_INFO, _R.GET_BROKER_HA_STATUS, _R.RESET_MASTER_FLUSH_OFFSET,
            _R.GET_BROKER_EPOCH_CACHE, _R.NOTIFY_BROKER_ROLE_CHANGED,
            _R.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, _R.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
            _R.GET_COLD_DATA_FLOW_CTR_INFO, _R.SET_COMMITLOG_READ_MODE, _R.POP_ROLLBACK,
            *range(_R.ESCROW_PENDING_LIST, _R.ESCROW_KEY_ROTATE + 1), _R.ESCROW_ACL_EXPLAIN,
            *range(_R.AUTH_CREATE_USER, _R.AUTH_LIST_ACL + 1),
        ),
        ADMIN,
    ),
}  # fmt: skip
"""What each request needs here."""


def _group_sent_back(request: Command) -> Iterable[Need]:
    return (Need(group_resource((request.ext or {}).get("group", "")), SUB),)


_STATIC_TOPIC: Final = 513

PEER_NEEDS: Final[dict[int, Rule]] = {
    **{
        code: NEEDS[code]
        for code in (
            _R.SEND_BATCH_MESSAGE, _R.PULL_MESSAGE,
            _R.QUERY_MESSAGE, _R.HEART_BEAT, _R.UNREGISTER_CLIENT, _R.GET_CONSUMER_LIST_BY_GROUP,
            _R.UPDATE_CONSUMER_OFFSET,
        )
    },
    _R.SEND_MESSAGE: _field("topic", PUB),
    _R.SEND_MESSAGE_V2: _field("b", PUB),
    _R.CONSUMER_SEND_MSG_BACK: _group_sent_back,
    **dict.fromkeys(
        (
            _R.UPDATE_AND_CREATE_TOPIC, _R.UPDATE_BROKER_CONFIG, _R.DELETE_TOPIC_IN_BROKER,
            _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, _R.DELETE_SUBSCRIPTIONGROUP, _STATIC_TOPIC,
            _R.UPDATE_AND_CREATE_ACL_CONFIG, _R.DELETE_ACL_CONFIG, _R.GET_BROKER_CLUSTER_ACL_INFO,
        ),
        ADMIN,
    ),
}  # fmt: skip
"""What the peer asks for (PlainAccessResource, Permission; 5.3.2): any account does the rest."""


def needs_of(request: Command, places: Places, *, as_peer: bool) -> Admin | list[Need]:
    """What a request needs beside an account."""
    rule = PEER_NEEDS.get(request.code, _nothing) if as_peer else NEEDS.get(request.code, ADMIN)
    if isinstance(rule, Admin):
        return ADMIN
    found = rule.read(request, places) if isinstance(rule, Stored) else rule(request)
    needs = list(found)
    if as_peer:
        return needs
    for need in list(needs):
        if need.resource.startswith(Topic.RETRY_PREFIX):
            needs += _of_popped(need.resource, places)
    own_topic = next((need.resource for need in needs if is_inner(need.resource)), "")
    return Admin(own_topic, tuple(needs)) if own_topic else needs


def _of_popped(retry_topic: str, places: Places) -> Iterator[Need]:
    """What `%RETRY%<group>_<topic>` needs besides: it looks like the retry topic of a group of
    that long name, and holds what <group> has popped from <topic>. With the older joint it mostly
    is that of the long name; what was popped is only there if <group> reads it."""
    name = retry_topic.removeprefix(Topic.RETRY_PREFIX)
    for at, letter in enumerate(name):
        group, topic = name[:at], name[at + 1 :]
        is_popped = letter == _JOINT or (
            letter == _OLDER_JOINT and places.has_offsets(group, retry_topic)
        )
        if is_popped and places.has_topic(topic):
            yield Need(group_resource(group), SUB)
            yield Need(topic, SUB)
