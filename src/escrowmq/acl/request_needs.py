"""Determines the rights that requests need; the tables of requests use these functions
(docs/security.md repeats the result).

Requests without a rule need an administrator. Stored data overrides a request's own claims: an END
needs rights to the topic of its half, a view to the topic of its message."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol

import msgspec

from escrowmq.acl.acl1_accounts import ANY, PUB, SUB
from escrowmq.base.command import Command
from escrowmq.base.message import NOT_SENDABLE, Property, Topic
from escrowmq.base.own_properties import EPOCH
from escrowmq.codec.batch_ack_body import decode_acks
from escrowmq.codec.client_bodies import CheckClientBody, HeartbeatBody, LockBody, decode_body
from escrowmq.codec.epoch_bodies import EpochId
from escrowmq.codec.headers import RecallHeader, SendBackHeader, ViewMessageHeader, read_header
from escrowmq.codec.pop_receipt import original_topic
from escrowmq.codec.properties import parse_properties
from escrowmq.codec.recall_handle import decode_recall_handle


class Need(msgspec.Struct, frozen=True):
    """A right to a topic, or to a group by the name of its retry topic."""

    resource: str
    right: int


class StoredDataLookup(Protocol):
    """Looks up stored data on which rights depend."""

    @property
    def reply_topic(self) -> str:
        """The name of the topic for replies to requests."""

    def request_topic_of_reply(self, properties: Mapping[str, str]) -> str | None:
        """Return the topic of the request that a reply with these properties answers; None if
        unknown."""

    def topics_of_end(self, request: Command) -> Iterable[str]:
        """Return the topics of the messages that an END commits or rolls back."""

    def topic_at(self, log_offset: int) -> str | None:
        """Return the topic of the record at a log offset; None if there is none."""

    def has_topic(self, topic: str) -> bool:
        """Whether a topic exists."""

    def has_offsets(self, group: str, topic: str) -> bool:
        """Whether a group reads a topic, or has read it."""


ReadNeeds = Callable[[Command], Iterable[Need]]
"""A function that returns which rights a request needs."""


class StoredDataNeeds(msgspec.Struct, frozen=True):
    """A function that finds the needs of a request with the help of stored data."""

    read: Callable[[Command, StoredDataLookup], Iterable[Need]]


class AdminNeeded(msgspec.Struct, frozen=True):
    """The result for a request that needs an administrator."""

    own_topic: str = ""
    """The broker's own topic for which an administrator is needed; empty if the kind of request
    needs one."""

    needs: tuple[Need, ...] = ()
    """The rights that the request would need if that topic were an ordinary one."""


ADMIN: Final = AdminNeeded()
Needs = AdminNeeded | StoredDataNeeds | ReadNeeds


def is_inner_topic(topic: str) -> bool:
    """Whether a topic is one of those of the broker that contain messages of any topic which are
    not published yet."""
    return topic in _INNER or topic.startswith(Topic.SYSTEM_PREFIX)


def matches_only_inner(beginning: str) -> bool:
    """Whether a prefix of topic names matches only the broker's own topics with unpublished
    messages."""
    if len(beginning) < len(Topic.SYSTEM_PREFIX):
        return False
    return is_inner_topic(beginning) or any(topic.startswith(beginning) for topic in _INNER)


_JOINT: Final = "+"
_OLDER_JOINT: Final = "_"
_INNER: Final = NOT_SENDABLE - {Topic.SELF_TEST}


def group_resource(group: str) -> str:
    """Return the name under which a group's rights are stored."""
    return Topic.RETRY_PREFIX + group


# -- readers of fields ---------------------------------------------------------------------------


def no_needs(_: Command) -> Iterable[Need]:
    """Return no needs: the request needs an account, but no right."""
    return ()


def topic_field_needs(name: str, right: int) -> ReadNeeds:
    """Return a reader for requests that need a right to the topic named in a field. For a retry
    topic, any use counts as reading as its group."""

    def read(request: Command) -> Iterable[Need]:
        topic = (request.ext or {}).get(name, "")
        return (Need(topic, SUB if topic.startswith(Topic.RETRY_PREFIX) else right),)

    return read


def group_field_needs(name: str = "consumerGroup") -> ReadNeeds:
    """Return a reader for requests that need the right to read as the group named in a field."""

    def read(request: Command) -> Iterable[Need]:
        return (Need(group_resource((request.ext or {}).get(name, "")), SUB),)

    return read


def needs_if_present(reader: ReadNeeds, name: str) -> ReadNeeds:
    """Return a reader with the needs of another one for requests that have a field, and none for
    others."""

    def read(request: Command) -> Iterable[Need]:
        return reader(request) if (request.ext or {}).get(name) else ()

    return read


def combined_needs(*readers: ReadNeeds) -> ReadNeeds:
    """Return a reader that combines the needs of several."""

    def read(request: Command) -> Iterable[Need]:
        return [need for reader in readers for need in reader(request)]

    return read


GROUP: Final = group_field_needs()
READ: Final = combined_needs(GROUP, topic_field_needs("topic", SUB))
OF_GROUP: Final = combined_needs(group_field_needs("group"), topic_field_needs("topic", SUB))


# -- readers of bodies and of what is stored -----------------------------------------------------


def _pop_needs(group: str, topic: str) -> Iterator[Need]:
    """Yield the needs of popping a topic as a group: to read as the group, and to read the topic.
    The group's retry topic for a topic counts as that topic."""
    yield Need(group_resource(group), SUB)
    normal = original_topic(topic, group)
    if normal != group_resource(group):
        yield Need(normal, SUB)


def ack_needs(request: Command) -> Iterable[Need]:
    """Return the needs of an ack: to read as the group, and to read the popped topic."""
    ext = request.ext or {}
    return _pop_needs(ext.get("consumerGroup", ""), ext.get("topic", ""))


def batch_ack_needs(request: Command) -> Iterable[Need]:
    """Return the needs of acks of several groups and topics, from the body."""
    batches = decode_acks(request.body)
    return [need for batch in batches for need in _pop_needs(batch.c, batch.t)]


def heartbeat_needs(request: Command) -> Iterable[Need]:
    """Return the needs of a heartbeat: to read as each group that the client joins, and to read
    each topic that it subscribes to."""
    body = decode_body(HeartbeatBody, request.body)
    for consumer in body.consumers or ():
        yield Need(group_resource(consumer.group_name), SUB)
        for subscription in consumer.subscription_data_set or ():
            yield Need(subscription.topic, SUB)


def lock_needs(request: Command) -> Iterable[Need]:
    """Return the needs of a request to lock queues: to read as the group, and to read the queues'
    topics."""
    body = decode_body(LockBody, request.body)
    yield Need(group_resource(body.consumer_group), SUB)
    for topic in {queue.topic for queue in body.mq_set}:
        yield Need(topic, SUB)


def check_needs(request: Command) -> Iterable[Need]:
    """Return the needs of a request to validate a subscription: to read as its group, and to read
    its topic."""
    body = decode_body(CheckClientBody, request.body)
    yield Need(group_resource(body.group), SUB)
    if body.subscription_data is not None:
        yield Need(body.subscription_data.topic, SUB)


class _Assignment(msgspec.Struct, rename="camel"):
    topic: str
    consumer_group: str


def assignment_needs(request: Command) -> Iterable[Need]:
    """Return the needs of a request for assigned queues: to read as the group, and to read the
    topic."""
    body = decode_body(_Assignment, request.body)
    return (Need(group_resource(body.consumer_group), SUB), Need(body.topic, SUB))


def end_needs(request: Command, places: StoredDataLookup) -> Iterable[Need]:
    """Return the needs of an END: PUB on the topics of the halves that it ends."""
    return [Need(topic, PUB) for topic in places.topics_of_end(request)]


def view_needs(request: Command, places: StoredDataLookup) -> Iterable[Need]:
    """Return the needs of a request to view a message: to read the message's topic. If the message
    is not stored any more, to read the topic that the request names."""
    header = read_header(ViewMessageHeader, request.ext)
    topic = places.topic_at(header.offset)
    return (Need(header.topic or "" if topic is None else topic, SUB),)


def send_back_needs(request: Command, places: StoredDataLookup) -> Iterable[Need]:
    """Return the needs of sending a message back: to read as the group and, because the message
    will be read again, to read the message's topic."""
    header = read_header(SendBackHeader, request.ext)
    topic = places.topic_at(header.offset)
    # If the message is gone, the handler reports that.
    return _pop_needs(header.group, group_resource(header.group) if topic is None else topic)


def recall_needs(request: Command) -> Iterable[Need]:
    """Return the needs of a recall: PUB on the topic that the request names, and on the one in the
    handle."""
    header = read_header(RecallHeader, request.ext)
    return (Need(header.topic, PUB), Need(decode_recall_handle(header.recall_handle).topic, PUB))


_OF_EPOCH: Final = f"{EPOCH}\x01"


def send_needs(topic: str, properties: str) -> ReadNeeds:
    """Return a reader for sends: PUB on the topic. A half of an epoch also needs PUB on the group,
    which is the right to decide about the epoch."""
    plain = topic_field_needs(topic, PUB)

    def read(request: Command) -> Iterable[Need]:
        text = (request.ext or {}).get(properties, "")
        if _OF_EPOCH not in text:
            return plain(request)
        group = parse_properties(text).get(Property.PGROUP, "")
        return (*plain(request), Need(group_resource(group), PUB))

    return read


def reply_needs(name: str, properties: str) -> StoredDataNeeds:
    """Return a reader for replies: PUB on the topic. For the cluster's reply topic, SUB on the
    topic of the request is enough."""
    plain = topic_field_needs(name, PUB)

    def read(request: Command, places: StoredDataLookup) -> Iterable[Need]:
        ext = request.ext or {}
        if ext.get(name) == places.reply_topic:
            asked_in = places.request_topic_of_reply(parse_properties(ext.get(properties, "")))
            if asked_in is not None:
                return (Need(asked_in, SUB),)
        return plain(request)

    return StoredDataNeeds(read)


def decision_needs(request: Command) -> Iterable[Need]:
    """Return the needs of a decision about an epoch: PUB on the sink's group. Rights to the topics
    were checked when the messages were sent."""
    group = decode_body(EpochId, request.body).group
    return (Need(group_resource(group), PUB),)


ANY_TOPIC: Final = topic_field_needs("topic", ANY)


def needs_of(rule: Needs, request: Command, places: StoredDataLookup) -> AdminNeeded | list[Need]:
    """Return the rights that a request needs, besides an account."""
    if isinstance(rule, AdminNeeded):
        return ADMIN
    needs = list(rule.read(request, places) if isinstance(rule, StoredDataNeeds) else rule(request))
    for need in list(needs):
        if need.resource.startswith(Topic.RETRY_PREFIX):
            needs += _popped_retry_needs(need.resource, places)
    own_topic = next((need.resource for need in needs if is_inner_topic(need.resource)), "")
    return AdminNeeded(own_topic, tuple(needs)) if own_topic else needs


def _popped_retry_needs(retry_topic: str, places: StoredDataLookup) -> Iterator[Need]:
    """Yield additional needs of a retry topic whose name may mean `<group>+<topic>`: then it has
    what <group> has popped from <topic>. The older form `<group>_<topic>` is also the retry topic
    of a group with that whole name; it is taken for a pop's only if <group> has offsets in it."""
    name = retry_topic.removeprefix(Topic.RETRY_PREFIX)
    for at, letter in enumerate(name):
        group, topic = name[:at], name[at + 1 :]
        is_popped = letter == _JOINT or (
            letter == _OLDER_JOINT and places.has_offsets(group, retry_topic)
        )
        if is_popped and places.has_topic(topic):
            yield Need(group_resource(group), SUB)
            yield Need(topic, SUB)
