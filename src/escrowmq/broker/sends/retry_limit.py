"""The retry limit: decides when a message becomes a dead letter."""

from __future__ import annotations

from escrowmq.base.codes import Version
from escrowmq.delivery.groups import GroupConfig


def is_dead_letter(
    redelivery: int, group: GroupConfig, *, times_max: int | None, sender_version: int
) -> bool:
    """Whether a message becomes a dead letter, because redelivery number `redelivery` would exceed
    the limit: the sender's own, or its group's. (RocketMQ compares this number with `>`, and the
    number of the redelivery that failed with `>=`; both mean the same limit.)"""
    if times_max is None or sender_version < Version.V3_4_9:
        times_max = group.retry_max_times
    return redelivery > times_max
