"""The validations that RocketMQ's proxy itself makes, in its order, with its codes and texts."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from escrowmq.base.fixed_limits import (
    GROUP_SIZE_MAX,
    GRPC_DELAY_MAX_MS,
    GRPC_ENDPOINTS_SIZE_MAX,
    GRPC_PROPERTIES_MAX,
    GRPC_PROPERTIES_SIZE_MAX,
    GRPC_RECOVERY_MAX_S,
    MESSAGE_GROUP_SIZE_MAX,
    TOPIC_SIZE_MAX,
)
from escrowmq.base.message import NOT_SENDABLE, Property, Topic
from escrowmq.base.names import NAME_LETTERS, has_name_letters
from escrowmq.base.reserved import RESERVED
from escrowmq.proxy.gen import v2
from escrowmq.proxy.result_codes import CallFault

INVISIBLE_MIN_MS: Final = 10_000
INVISIBLE_MAX_MS: Final = 43_200_000

_FIRST_S: Final = -62_135_596_800
_LAST_S: Final = 253_402_300_799
"""The last second of the years 1 to 9999, the range of a Timestamp."""

TOPICS_KEPT_MAX: Final = 1_024
"""The most names of valid topics that are cached."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SYSTEM: Final = NOT_SENDABLE | {Topic.DEFAULT, Topic.BENCHMARK}
_OURS: Final = frozenset(
    {"escrowTransaction", "escrowDelay", "escrowOrderKey", "escrowChecker", "escrowMarker"}
)
"""EscrowMQ's properties that users may set on transactions (docs/grpc.md)."""

_HIDDEN: Final = RESERVED - _OURS | {Property.TRAN_MSG}


def valid_topic_name(resource: v2.Resource) -> str:
    """Return the name of a topic; raises a Fault if it is invalid."""
    return _check_topic_name(resource.name)


@functools.lru_cache(TOPICS_KEPT_MAX)
def _check_topic_name(name: str) -> str:
    """Return a topic's name if it is valid; raise a Fault otherwise. Only valid names are
    cached."""
    if not name.strip():
        raise CallFault(v2.ILLEGAL_TOPIC, "topic name cannot be blank")
    if not has_name_letters(name):
        raise CallFault(
            v2.ILLEGAL_TOPIC,
            f"the topic {name[:64]!r} has invalid characters; {NAME_LETTERS} are allowed",
        )
    if len(name) > TOPIC_SIZE_MAX:
        raise CallFault(
            v2.ILLEGAL_TOPIC, f"a topic of {len(name)} characters; {TOPIC_SIZE_MAX} are allowed"
        )
    if name in _SYSTEM or name.startswith(Topic.SYSTEM_PREFIX):
        raise CallFault(v2.ILLEGAL_TOPIC, "cannot access system topic")
    return name


def check_endpoints(endpoints: v2.Endpoints) -> None:
    """Raise a Fault if addresses are too large: they are stored, and repeated for each queue of a
    route."""
    size = endpoints.ByteSize()
    if size > GRPC_ENDPOINTS_SIZE_MAX:
        raise CallFault(
            v2.ILLEGAL_ACCESS_POINT,
            f"endpoints of {size} bytes; {GRPC_ENDPOINTS_SIZE_MAX} are allowed; name fewer, or "
            "shorter, addresses",
        )


def valid_group_name(resource: v2.Resource) -> str:
    """Return the name of a consumer group; raises a Fault if it is invalid."""
    name = resource.name
    if not name.strip():
        raise CallFault(v2.ILLEGAL_CONSUMER_GROUP, "consumer group cannot be blank")
    if not has_name_letters(name) or len(name) > GROUP_SIZE_MAX:
        raise CallFault(
            v2.ILLEGAL_CONSUMER_GROUP,
            f"the group {name[:64]!r}: up to {GROUP_SIZE_MAX} characters of {NAME_LETTERS} "
            "are allowed",
        )
    return name


def common_topic(messages: Sequence[v2.Message]) -> str:
    """Return the topic of a call's messages; raises a Fault if they have several."""
    if not messages:
        raise CallFault(v2.MESSAGE_CORRUPTED, "no message to send")
    topic = valid_topic_name(messages[0].topic)
    if len(messages) > 1 and any(valid_topic_name(each.topic) != topic for each in messages):
        raise CallFault(v2.MESSAGE_CORRUPTED, "topic in message is not same")
    return topic


def check_message(
    one: v2.Message, system: v2.SystemProperties, *, size: int, body_size_max: int, now_ms: int
) -> None:
    """Validate a message whose body has `size` bytes."""
    if not size:
        raise CallFault(v2.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    if size > body_size_max:
        raise CallFault(
            v2.MESSAGE_BODY_TOO_LARGE, f"message body cannot exceed the max {body_size_max}"
        )
    total = _check_user_properties(one)
    if system.HasField("tag"):
        total += _check_tag(system.tag)
    keys = system.keys
    if keys:  # to find nothing in it by a loop takes ten times as long
        total += sum(map(_check_key, keys))
    if total > GRPC_PROPERTIES_SIZE_MAX:
        raise CallFault(
            v2.MESSAGE_PROPERTIES_TOO_LARGE,
            f"the total size of user property is too large, max is {GRPC_PROPERTIES_SIZE_MAX}",
        )
    if not system.message_id.strip():
        raise CallFault(v2.ILLEGAL_MESSAGE_ID, "message id cannot be empty")
    _refuse_control_characters(v2.ILLEGAL_MESSAGE_ID, "message id", system.message_id)
    _check_delivery_properties(system, now_ms)


def _check_user_properties(one: v2.Message) -> int:
    own = one.user_properties
    if not own:
        return 0
    if len(own) > GRPC_PROPERTIES_MAX:
        raise CallFault(
            v2.MESSAGE_PROPERTIES_TOO_LARGE,
            f"too many user properties, max is {GRPC_PROPERTIES_MAX}",
        )
    total = 0
    for name, value in own.items():
        if name in _HIDDEN:
            raise CallFault(v2.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property is used by system: {name}")
        if _CONTROL.search(name):
            raise CallFault(
                v2.ILLEGAL_MESSAGE_PROPERTY_KEY,
                "the key of property cannot contain control character",
            )
        if _CONTROL.search(value):
            raise CallFault(
                v2.ILLEGAL_MESSAGE_PROPERTY_KEY,
                "the value of property cannot contain control character",
            )
        total += len(name.encode()) + len(value.encode())
    return total


def _check_tag(tag: str) -> int:
    code = v2.ILLEGAL_MESSAGE_TAG
    if not tag.strip():
        raise CallFault(code, "tag cannot be the char sequence of whitespace")
    if "|" in tag:
        raise CallFault(code, "tag cannot contain '|'")
    _refuse_control_characters(code, "tag", tag)
    return len(tag.encode())


def _check_key(key: str) -> int:
    if not key.strip():
        raise CallFault(v2.ILLEGAL_MESSAGE_KEY, "key cannot be the char sequence of whitespace")
    _refuse_control_characters(v2.ILLEGAL_MESSAGE_KEY, "key", key)
    return len(key.encode())


def _refuse_control_characters(code: int, what: str, text: str) -> None:
    # `isprintable` is eight times as fast as the search, and nearly always True.
    if not text.isprintable() and _CONTROL.search(text):
        raise CallFault(code, f"{what} cannot contain control character")


def valid_invisible_ms(span: Duration) -> int:
    """Return how long a received message stays invisible. Raises a Fault if the time is invalid."""
    span_ms = span.ToMilliseconds()
    if span_ms < INVISIBLE_MIN_MS:
        text = f"the invisibleTime is too small. min is {INVISIBLE_MIN_MS}"
        raise CallFault(v2.ILLEGAL_INVISIBLE_TIME, text)
    if span_ms > INVISIBLE_MAX_MS:
        text = f"the invisibleTime is too large. max is {INVISIBLE_MAX_MS}"
        raise CallFault(v2.ILLEGAL_INVISIBLE_TIME, text)
    return span_ms


def valid_next_invisible_ms(span: Duration) -> int:
    """Return how long a received message stays invisible, counted from now; 0 makes it visible.
    Raises a Fault if the time is invalid."""
    span_ms = span.ToMilliseconds()
    if not 0 <= span_ms <= INVISIBLE_MAX_MS:
        raise CallFault(
            v2.ILLEGAL_INVISIBLE_TIME,
            f"the invisibleTime is {span_ms} ms; 0 to {INVISIBLE_MAX_MS} are allowed",
        )
    return span_ms


def set_timestamp(moment: Timestamp, ms: int) -> None:
    """Set a timestamp field to a time that a client chose, or to the nearest valid time."""
    moment.FromMilliseconds(min(max(ms, _FIRST_S * 1_000), _LAST_S * 1_000 + 999))


def timestamp_ms(moment: Timestamp, code: int) -> int:
    """Return milliseconds since the epoch; raises a Fault with `code` for an invalid time."""
    seconds, nanos = moment.seconds, moment.nanos
    if not _FIRST_S <= seconds <= _LAST_S or not 0 <= nanos < 1_000_000_000:
        raise CallFault(code, f"{seconds} s and {nanos} ns are not within the years 1 to 9999")
    return seconds * 1_000 + nanos // 1_000_000


def _check_delivery_properties(system: v2.SystemProperties, now_ms: int) -> None:
    """Validate the properties for delivery time, message group, and time of the first check."""
    if (
        system.HasField("orphaned_transaction_recovery_duration")
        and system.orphaned_transaction_recovery_duration.seconds > GRPC_RECOVERY_MAX_S
    ):
        raise CallFault(
            v2.BAD_REQUEST,
            "the max transaction recovery time of message is too large, "
            f"max is {GRPC_RECOVERY_MAX_S}",
        )
    if (
        system.HasField("delivery_timestamp")
        and timestamp_ms(system.delivery_timestamp, v2.ILLEGAL_DELIVERY_TIME) - now_ms
        > GRPC_DELAY_MAX_MS
    ):
        raise CallFault(
            v2.ILLEGAL_DELIVERY_TIME,
            f"the max delay time of message is too large, max is {GRPC_DELAY_MAX_MS}",
        )
    if system.HasField("message_group"):
        group = system.message_group
        if not group.strip():
            raise CallFault(
                v2.ILLEGAL_MESSAGE_GROUP, "message group cannot be the char sequence of whitespace"
            )
        if len(group.encode()) >= MESSAGE_GROUP_SIZE_MAX:
            raise CallFault(
                v2.ILLEGAL_MESSAGE_GROUP,
                f"message group exceed the max size {MESSAGE_GROUP_SIZE_MAX}",
            )
        _refuse_control_characters(v2.ILLEGAL_MESSAGE_GROUP, "message group", group)
    _refuse_control_characters(v2.BAD_REQUEST, "trace context", system.trace_context)
    _refuse_control_characters(v2.BAD_REQUEST, "born host", system.born_host)
