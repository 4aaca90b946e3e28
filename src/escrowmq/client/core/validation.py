"""Validation before sending: refuses what no broker would accept. InvalidMessage says what was
found, what is allowed, and what to do."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final

from escrowmq.base.fixed_limits import (
    GROUP_SIZE_MAX,
    INT_MAX,
    PROPERTIES_SIZE_MAX,
    TOPIC_SIZE_MAX,
)
from escrowmq.base.message import KEYS_SEPARATOR, is_sendable
from escrowmq.base.names import has_name_letters
from escrowmq.base.reserved import RESERVED
from escrowmq.client.core.message import Message
from escrowmq.errors import InvalidMessage

_ALLOWED: Final = "letters, digits and the characters % | _ - are allowed"
DELAY_LEVEL_MAX: Final = 18
_NAMED_BY_THE_PEER: Final = frozenset({"DEFAULT_PRODUCER", "DEFAULT_CONSUMER"})
BETWEEN_TAGS: Final = "||"
_SEPARATORS: Final = ("\x01", "\x02")


def check_topic(topic: object, *, instead: str = "send to another") -> None:
    """Validate a topic for sending or reading; `instead` says what to do if it is invalid."""
    check_topic_name(topic)
    if not is_sendable(str(topic)):
        raise InvalidMessage(f"the topic {topic!r} is the broker's own; {instead}")


def check_topic_name(topic: object) -> None:
    """Validate the name of a topic."""
    if not isinstance(topic, str):
        raise InvalidMessage(f"the topic is {topic!r}; name one")
    _check_topic_name(topic)


@functools.lru_cache(maxsize=4096)
def _check_topic_name(topic: str) -> None:
    if not topic.strip():
        raise InvalidMessage(f"the topic is {topic!r}; name one")
    if len(topic) > TOPIC_SIZE_MAX:
        raise InvalidMessage(
            f"the topic {topic[:32]!r}... has {len(topic)} characters; "
            f"at most {TOPIC_SIZE_MAX} are allowed"
        )
    if not has_name_letters(topic):
        raise InvalidMessage(f"the topic {topic!r} has invalid characters; {_ALLOWED}")


@functools.lru_cache(maxsize=1024)
def check_group(group: object) -> None:
    """Validate the name of a group of producers or consumers."""
    if not isinstance(group, str) or not group.strip():
        raise InvalidMessage(
            f"the group is {group!r}; name one, all processes of a service share it"
        )
    if len(group) > GROUP_SIZE_MAX:
        raise InvalidMessage(
            f"the group {group[:32]!r}... has {len(group)} characters; "
            f"at most {GROUP_SIZE_MAX} are allowed"
        )
    if not has_name_letters(group):
        raise InvalidMessage(f"the group {group!r} has invalid characters; {_ALLOWED}")
    if group in _NAMED_BY_THE_PEER:
        raise InvalidMessage(f"the group {group!r} is reserved; choose a name of your service")


def check_message(message: Message, *, body_size_max: int) -> None:
    """Validate a message as a user gives it."""
    if not isinstance(message, Message):
        raise InvalidMessage(f"{message!r:.64} is not a message; make one with escrowmq.Message")
    check_topic(message.topic)
    body = message.body
    if not isinstance(body, bytes | bytearray | memoryview):
        raise InvalidMessage(
            f"the body is of type {type(body).__name__}; bytes are expected, encode it first"
        )
    if not body:
        raise InvalidMessage("the body is empty; no broker accepts that, send at least one byte")
    if len(body) > body_size_max:
        raise InvalidMessage(
            f"the body has {len(body)} bytes; at most {body_size_max} are allowed "
            "(body_size_max here, maxMessageSize at the broker)"
        )
    if message.keys:
        _check_keys(message)
    if message.tag or message.order_key:
        _check_texts(message)
    if message.properties:
        _check_properties(message.properties)
    if message.delay_level or message.delay is not None:
        _check_delay(message)
    if message.flag:
        _check_flag(message.flag)


def _check_keys(message: Message) -> None:
    given: object = message.keys
    if not isinstance(given, str | list | tuple | set | frozenset):
        raise InvalidMessage(f"keys={given!r}; a text, or a list of texts, is expected")
    keys: list[object] = [*message.key_list]
    for key in keys:
        if not isinstance(key, str) or not key or KEYS_SEPARATOR in key:
            raise InvalidMessage(
                f"the key {key!r} is invalid: keys are words without blanks; give several as a list"
            )


def _check_texts(message: Message) -> None:
    if BETWEEN_TAGS in str(message.tag):
        raise InvalidMessage(
            f"the tag {message.tag!r} contains {BETWEEN_TAGS!r}, which separates tags in "
            "subscriptions; a message has one tag"
        )
    found: list[tuple[str, object]] = [("tag", message.tag), ("order_key", message.order_key)]
    for name, value in found:
        if not (isinstance(value, str) or value is None):
            raise InvalidMessage(f"{name}={value!r}; a text is expected")


def _check_properties(properties: Mapping[str, str]) -> None:
    given: object = properties
    if not isinstance(given, Mapping):
        raise InvalidMessage(f"properties={given!r}; a dict of texts is expected")
    found: list[tuple[object, object]] = [*properties.items()]
    for name, value in found:
        if name in RESERVED:
            raise InvalidMessage(f"the property {name!r} is reserved; rename yours")
        if not isinstance(name, str) or not isinstance(value, str) or not name or not value:
            raise InvalidMessage(
                f"the property {name!r}={value!r}: name and value must be texts, and not empty"
            )


def _check_delay(message: Message) -> None:
    given = (message.delay_level != 0, message.delay is not None, message.deliver_at is not None)
    if sum(given) > 1:
        raise InvalidMessage(
            "more than one of delay_level, delay and deliver_at is given; choose one"
        )
    level: object = message.delay_level
    if not isinstance(level, int) or not 0 <= level <= DELAY_LEVEL_MAX:
        raise InvalidMessage(
            f"delay_level={level!r}; 1..{DELAY_LEVEL_MAX} is expected, or 0 for none"
        )


def _check_flag(flag: object) -> None:
    if not isinstance(flag, int) or not -INT_MAX - 1 <= flag <= INT_MAX:
        raise InvalidMessage(f"flag={flag!r}; a whole number of 32 bits is expected")


def check_encoded_properties(text: str, names_count: int) -> None:
    """Validate encoded properties: no separator inside a name or value, and not too many bytes."""
    for separator in _SEPARATORS:
        if text.count(separator) != names_count:
            raise InvalidMessage(
                "a property, tag or key contains the character 0x01 or 0x02, which the "
                "protocol reserves; encode it, for example with base64"
            )
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidMessage(
            f"a property, tag or key contains half a character ({error.reason}), as the names of "
            "files can whose encoding is unknown; encode it, for example with base64"
        ) from error
    if size > PROPERTIES_SIZE_MAX:
        raise InvalidMessage(
            f"the properties have {size} bytes; at most {PROPERTIES_SIZE_MAX} are allowed, "
            f"put large data into the body"
        )
