"""Reads the records of the timer's topic: when each is due, and which message it recalls."""

from __future__ import annotations

from escrowmq.base.fixed_limits import TIMER_PRECISION_MAX_MS
from escrowmq.base.message import Property, StoredMessage
from escrowmq.delivery.delayed_messages import requested_delivery_ms


def delivery_ms(source: StoredMessage, slot_ms: int) -> int:
    """Return the delivery time of a record to the millisecond, within its slot. A delay counts from
    the store time, which is at most a little later than the time of sending, or, in a copy of
    RocketMQ's, so late that its message gets the end of the slot. A recall comes after that.

    The result depends on the record only, and every slot is treated as one of the longest. So saved
    progress means the same after a change of the precision.
    """
    last_ms = slot_ms + TIMER_PRECISION_MAX_MS
    if Property.TIMER_DEL_UNIQKEY in source.properties:
        return last_ms + 1
    wish_ms = requested_delivery_ms(source.properties, source.stored_ms)
    return last_ms if wish_ms is None else min(max(wish_ms, slot_ms + 1), last_ms)


def slot_before(wish_ms: int, precision_ms: int) -> int:
    """Return a time at or before the slot of a record with this delivery time, whatever precision
    it was stored with. `precision_ms` is the present one."""
    span_ms = TIMER_PRECISION_MAX_MS
    return wish_ms - wish_ms % span_ms - (span_ms if span_ms % precision_ms else 0)


def earliest_slot(stored_ms: int, precision_ms: int) -> int:
    """Return a time at or before the slots of all records stored from a time on. It leaves a moment
    for RocketMQ, which chooses the slot before the store time."""
    return slot_before(stored_ms - TIMER_PRECISION_MAX_MS, precision_ms)


def recall_key(message: StoredMessage) -> str:
    """Return the identity by which a delayed message is recalled."""
    properties = message.properties
    return f"{properties.get(Property.REAL_TOPIC)}+{properties.get(Property.UNIQ_KEY)}"
