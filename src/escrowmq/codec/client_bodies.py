"""JSON bodies of requests that clients send frequently."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import msgspec

from escrowmq.base.command import Command
from escrowmq.base.fixed_limits import JSON_BODY_SIZE_MAX, LOCKS_SIZE_MAX, QUESTION_SIZE_MAX
from escrowmq.codec import fastjson
from escrowmq.codec.fastjson import QueueId, decode_queue_map
from escrowmq.errors import RemoteProtocolError, UsageError

_SIZE = 200
_TAG_SIZE = 60
_CODE_SIZE = 40


class SubscriptionBody(msgspec.Struct, rename="camel", kw_only=True):
    """A consumer's subscription to one topic. The fields are in RocketMQ's order."""

    class_filter_mode: bool = False
    code_set: list[int | str] = []
    expression_type: str | None = "TAG"
    sub_string: str | None = None
    sub_version: int = 0
    tags_set: list[str] = []
    topic: str = ""

    @property
    def letters_count(self) -> int:
        """The characters of all texts in it, and the bytes of numbers as clients may invent
        them."""
        found = len(self.topic) + len(self.sub_string or "") + len(self.expression_type or "")
        if self.tags_set:
            found += sum(map(len, self.tags_set))
        for code in self.code_set:
            found += len(code) if isinstance(code, str) else code.bit_length() >> 3
        return found + (self.sub_version.bit_length() >> 3)

    @property
    def memory_size(self) -> int:
        """About how many bytes of memory the subscription takes: one for each letter, and more for
        each tag and code."""
        tags = _TAG_SIZE * len(self.tags_set) + _CODE_SIZE * len(self.code_set)
        return _SIZE + self.letters_count + tags


class ProducerBody(msgspec.Struct, rename="camel"):
    """A producer group of a client, in a heartbeat."""

    group_name: str = ""


class ConsumerBody(msgspec.Struct, rename="camel", kw_only=True):
    """A consumer group of a client, with its subscriptions, in a heartbeat."""

    group_name: str
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    subscription_data_set: list[SubscriptionBody] | None = None
    unit_mode: bool = False


class HeartbeatBody(msgspec.Struct, kw_only=True):
    """The body of HEART_BEAT (34)."""

    size_max: ClassVar[int] = JSON_BODY_SIZE_MAX
    client_id: str = msgspec.field(name="clientID")
    producers: list[ProducerBody] | None = msgspec.field(default=None, name="producerDataSet")
    consumers: list[ConsumerBody] | None = msgspec.field(default=None, name="consumerDataSet")
    fingerprint: int = msgspec.field(default=0, name="heartbeatFingerprint")
    without_sub: bool = msgspec.field(default=False, name="withoutSub")


class LockBody(msgspec.Struct, rename="camel", kw_only=True):
    """The body of LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42)."""

    size_max: ClassVar[int] = LOCKS_SIZE_MAX
    client_id: str = ""
    consumer_group: str = ""
    mq_set: list[QueueId] = []
    only_this_broker: bool = False


class CheckClientBody(msgspec.Struct, rename="camel", kw_only=True):
    """The body of CHECK_CLIENT_CONFIG (46)."""

    size_max: ClassVar[int] = QUESTION_SIZE_MAX
    client_id: str = ""
    group: str = ""
    namespace: str | None = None
    subscription_data: SubscriptionBody | None = None


T = TypeVar("T")


def read_own_body(request: Command, kind: type[T]) -> T:
    """Decode the body of one of our own requests, strictly. A missing body counts as an empty
    object. Raises UsageError."""
    if len(request.body) > JSON_BODY_SIZE_MAX:
        raise UsageError(
            f"the body of request {request.code} has {len(request.body)} bytes; "
            f"{JSON_BODY_SIZE_MAX} are allowed"
        )
    try:
        return msgspec.json.decode(request.body or b"{}", type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"the body of request {request.code}: {error}") from error


def decode_body(kind: type[T], data: bytes) -> T:
    """Decode a JSON body to a type. Raises RemoteProtocolError if it is invalid, or larger than the
    type's `size_max`, which types of bodies that any client may send have."""
    most = getattr(kind, "size_max", 0)
    if most and len(data) > most:
        raise RemoteProtocolError(
            f"a body of {len(data)} bytes; {most} are allowed; split it into several requests"
        )
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    raw: Any = fastjson.decode_fastjson(data)
    try:
        return msgspec.convert(raw, kind, strict=False)
    except msgspec.ValidationError as error:
        raise RemoteProtocolError(f"body: {error}") from error


def decode_queue_table(kind: type[T], data: bytes) -> dict[QueueId, T]:
    """Decode a body's `offsetTable`, by queue. Raises RemoteProtocolError."""
    body: Any = fastjson.decode_fastjson(data)
    table = body.get("offsetTable") if isinstance(body, dict) else None
    try:
        found = decode_queue_map(msgspec.convert(table or {}, dict[str, Any]))
        return {queue: msgspec.convert(value, kind, strict=False) for queue, value in found.items()}
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise RemoteProtocolError(f"offsetTable: {error}") from error
