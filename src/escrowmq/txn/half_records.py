"""Builds the records of a half message: the half, its final message, its copies."""

from __future__ import annotations

from typing import Final

from escrowmq.base.fixed_limits import INT_MAX, LONG_MAX, TOPIC_QUEUES_MAX
from escrowmq.base.message import Message, Property, StoredMessage, SysFlag, Topic
from escrowmq.base.own_properties import CARRIED, DELAYED, OWNER, TRANSACTION
from escrowmq.codec.properties import parse_number

_CHECKS_MAX: Final = 99_999

_DELAYING: Final = frozenset(
    {
        Property.DELAY,
        Property.TIMER_DELAY_SEC,
        Property.TIMER_DELAY_MS,
        Property.TIMER_DELIVER_MS,
    }
)


def is_half(properties: dict[str, str], reconsume_times: int) -> bool:
    """Whether a sent message is a half, by RocketMQ's rule (SendMessageProcessor)."""
    if properties.get(Property.TRAN_MSG, "").lower() != "true":
        return False
    level = parse_number(properties.get(Property.DELAY), most=INT_MAX)
    return not (reconsume_times > 0 and level is not None and level > 0)


def is_delayed(properties: dict[str, str]) -> bool:
    """Whether a half asks for a delay that counts from its commit."""
    return properties.get(DELAYED) == "true"


def make_half(message: Message) -> Message:
    """Return the half to store for a message. Its delay is removed, unless the sender wants the
    delay to count from the commit. RocketMQ's clients remove the delay level themselves, and
    RocketMQ loses a half with a delivery time."""
    properties = dict(message.properties)
    if not is_delayed(properties):
        for name in _DELAYING:
            properties.pop(name, None)
    unique_key = properties.get(Property.UNIQ_KEY)
    if unique_key:
        properties[Property.TRANSACTION_ID] = unique_key
    properties[Property.REAL_TOPIC] = message.topic
    properties[Property.REAL_QID] = str(message.queue_id)
    return Message(
        topic=Topic.HALF,
        body=message.body,
        queue_id=0,
        flag=message.flag,
        properties=properties,
        sys_flag=message.sys_flag & ~SysFlag.TRANSACTION_MASK,
        born_ms=message.born_ms,
        born_host=message.born_host,
        store_host=message.store_host,
        reconsume_times=message.reconsume_times,
    )


def target_queue(half: StoredMessage) -> tuple[str, int] | None:
    """Return the topic and queue to which a half will be committed; None if its properties lack
    them."""
    topic = half.properties.get(Property.REAL_TOPIC)
    queue_id = parse_number(half.properties.get(Property.REAL_QID), most=TOPIC_QUEUES_MAX - 1)
    if not topic or queue_id is None:
        return None
    return topic, queue_id


def make_final(half: StoredMessage) -> Message | None:
    """Return the message that a commit makes visible; None if the half lacks its topic or queue. It
    keeps all properties of the half, as in RocketMQ, except the account's mark. In a bundle it
    keeps that mark too: a start needs it to know which messages belong together."""
    place = target_queue(half)
    if place is None:
        return None
    topic, queue_id = place
    properties = half.properties
    if OWNER in properties and TRANSACTION not in properties:
        properties = properties.copy()  # the half itself keeps the mark
        del properties[OWNER]
    return Message(
        topic=topic,
        body=half.body,
        queue_id=queue_id,
        flag=half.flag,
        properties=properties,
        sys_flag=half.sys_flag & ~SysFlag.TRANSACTION_MASK | SysFlag.COMMIT,
        born_ms=half.born_ms,
        born_host=half.born_host,
        store_host=half.store_host,
        reconsume_times=half.reconsume_times,
        prepared_log_offset=half.log_offset,
    )


def copy_to(
    half: StoredMessage, topic: str, prepared_log_offset: int = 0, /, **changed: str
) -> Message:
    """Return a copy of a half for another topic: the topic of discarded halves, or the half topic
    again."""
    return Message(
        topic=topic,
        body=half.body,
        queue_id=0,
        flag=half.flag,
        properties={**half.properties, **changed},
        sys_flag=half.sys_flag,
        born_ms=half.born_ms,
        born_host=half.born_host,
        store_host=half.store_host,
        reconsume_times=half.reconsume_times,
        prepared_log_offset=prepared_log_offset,
    )


def original_offset(properties: dict[str, str]) -> int | None:
    """Return the queue offset of the half of which a half is a copy, carried forward; None if it is
    no such copy."""
    text = properties.get(CARRIED)
    return None if text is None else parse_number(text.partition(":")[0], most=LONG_MAX)


def recorded_checks(properties: dict[str, str]) -> int:
    """Return the number of checks that a copy of a half records in its properties."""
    counted = parse_number(properties.get(Property.TRANSACTION_CHECK_TIMES), most=_CHECKS_MAX)
    return 0 if counted is None else counted
