"""Stores delayed messages in other topics until they are due.

A message with a delay level goes to the schedule topic, one with a delivery time to the timer's
topic. Both keep their destination in REAL_TOPIC and REAL_QID (RocketMQ's HookUtils).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from escrowmq.base.answer import Refusal
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Response
from escrowmq.base.delay_levels import parse_delay_levels
from escrowmq.base.fixed_limits import PROPERTIES_SIZE_MAX, TOPIC_QUEUES_MAX
from escrowmq.base.message import Message, Property, StoredMessage, SysFlag, Topic
from escrowmq.base.store_settings import StoreSettings
from escrowmq.codec.properties import parse_number

DELIVERY_TIME_PROPERTIES: Final = (
    Property.TIMER_DELAY_SEC,
    Property.TIMER_DELAY_MS,
    Property.TIMER_DELIVER_MS,
)
"""Properties that ask for a delivery time. The first one present counts."""

_OVERHEAD_MAX: Final = 1024
"""An upper bound of the size of a record's other fields, its topic, and the added properties."""

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_LEVEL: Final = re.compile(r"[+-]?[0-9]{1,10}")
_NEVER_DELAYED: Final = frozenset({Topic.HALF, Topic.OP, Topic.SCHEDULE, Topic.TIMER})
_DELAYED_TYPES: Final = frozenset({0, SysFlag.COMMIT})


class DelayRules:
    """The settings for delays. Some may change while the broker runs."""

    def __init__(
        self,
        store: StoreSettings,
        broker: BrokerSettings,
        why_full: Callable[[str, int], str] = lambda *_: "",
    ) -> None:
        self.spans_ms: Final = parse_delay_levels(store.delay_levels)
        """The delay of each level in ms."""
        self.level_max: Final = max(self.spans_ms, default=0)
        self.has_timer: Final = broker.has_timer
        self.precision_ms: Final = broker.timer_precision_ms
        self.why_full: Final = why_full
        """Returns why no further message of a topic may wait for a delivery time; an empty text if
        it may."""
        self._broker = broker

    @property
    def ahead_max_ms(self) -> int:
        """How far in the future a delivery time may be, in ms."""
        return self._broker.timer_delay_max_s * 1000


def delay_message(
    message: Message, now_ms: int, rules: DelayRules, *, is_accepted: bool = False
) -> Message | Refusal:
    """Return the message to store: unchanged, or in its delayed form. Return a Refusal if its
    delivery time is not allowed.

    Half messages stay unchanged, because the transaction engine handles their delay. (RocketMQ's
    hook treats them like other messages, and loses them.) With `is_accepted`, a delivery time is
    accepted however far away it is, and however many wait: it was checked with the half.
    """
    if (
        message.topic in _NEVER_DELAYED
        or message.sys_flag & SysFlag.TRANSACTION_MASK not in _DELAYED_TYPES
    ):
        return message
    properties = message.properties
    text = properties.get(Property.DELAY)
    if text is not None:
        if not _LEVEL.fullmatch(text):
            remark = f"property DELAY is {text[:32]!r}; a level from 1 to {rules.level_max} is due"
            return Refusal(Response.MESSAGE_ILLEGAL, remark)
        level = int(text)
        if level > 0 and rules.level_max:
            return _delay_by_level(message, min(level, rules.level_max))
    if Property.TIMER_OUT_MS in properties or not any(
        name in properties for name in DELIVERY_TIME_PROPERTIES
    ):
        return message
    return _delay_by_time(message, now_ms, rules, is_accepted)


def _delay_by_level(message: Message, level: int) -> Message:
    properties = {k: v for k, v in message.properties.items() if k not in DELIVERY_TIME_PROPERTIES}
    properties[Property.DELAY] = str(level)
    return _moved_message(message, properties, Topic.SCHEDULE, level - 1)


def _delay_by_time(
    message: Message, now_ms: int, rules: DelayRules, is_accepted: bool
) -> Message | Refusal:
    if not rules.has_timer:
        return Refusal(
            Response.SYSTEM_ERROR,
            "accurate timer message is not enabled, timerWheelEnable is false",
        )
    wish_ms = requested_delivery_ms(message.properties, now_ms)
    is_too_far = wish_ms is not None and wish_ms - now_ms > rules.ahead_max_ms
    if wish_ms is None or (is_too_far and not is_accepted):
        return _illegal_delay_refusal(rules)
    if wish_ms <= now_ms:
        return (
            _illegal_delay_refusal(rules)
            if Property.TIMER_DEL_UNIQKEY in message.properties
            else message
        )
    if not is_accepted and (why := rules.why_full(message.topic, now_ms)):
        return Refusal(Response.SYSTEM_ERROR, f"timer message is under flow control: {why}")
    # The slot ends before the delivery time, even if that is on the border of two slots.
    slot_ms = (wish_ms - 1) // rules.precision_ms * rules.precision_ms
    properties = {**message.properties, Property.TIMER_OUT_MS: str(slot_ms)}
    return _moved_message(message, properties, Topic.TIMER, 0)


def requested_delivery_ms(properties: dict[str, str], sent_ms: int) -> int | None:
    """Return when a message should be delivered; None if the properties that say it are invalid."""
    for name in DELIVERY_TIME_PROPERTIES:
        text = properties.get(name)
        if text is None:
            continue
        if not _NUMBER.fullmatch(text):
            return None
        if name == Property.TIMER_DELIVER_MS:
            return int(text)
        return sent_ms + int(text) * (1000 if name == Property.TIMER_DELAY_SEC else 1)
    return None


def _illegal_delay_refusal(rules: DelayRules) -> Refusal:
    return Refusal(
        Response.MESSAGE_ILLEGAL,
        "timer message illegal, the delay time should not be bigger than the max delay "
        f"{rules.ahead_max_ms}ms; or if set del msg, the delay time should be bigger than the "
        "current time",
    )


def _moved_message(
    message: Message, properties: dict[str, str], topic: str, queue_id: int
) -> Message:
    properties[Property.REAL_TOPIC] = message.topic
    properties[Property.REAL_QID] = str(message.queue_id)
    return msgspec.structs.replace(message, topic=topic, queue_id=queue_id, properties=properties)


def restore_message(source: StoredMessage, **added: str) -> Message | None:
    """Return the original message of a delayed record; None if it has no destination. The `added`
    properties are set if there is space. DELAY, REAL_TOPIC, REAL_QID and the timer's properties
    stay on it, as on RocketMQ's disk: RocketMQ clears them after it has encoded the stored
    properties."""
    properties = source.properties
    topic = properties.get(Property.REAL_TOPIC)
    queue_id = parse_number(properties.get(Property.REAL_QID), most=TOPIC_QUEUES_MAX - 1)
    if not topic or topic in _NEVER_DELAYED or queue_id is None:
        return None
    if source.record_size - len(source.body) > PROPERTIES_SIZE_MAX - _OVERHEAD_MAX:
        added = {}
    if added or Property.CRC32 in properties:
        properties = {k: v for k, v in properties.items() if k != Property.CRC32} | added
    return Message(
        topic=topic,
        body=source.body,
        queue_id=queue_id,
        flag=source.flag,
        properties=properties,
        sys_flag=source.sys_flag,
        born_ms=source.born_ms,
        born_host=source.born_host,
        store_host=source.store_host,
        reconsume_times=source.reconsume_times,
    )
