"""The retry limit: decides when a message becomes a dead letter."""

from __future__ import annotations

from escrowmq.base.codes import Version
from escrowmq.delivery.groups import GroupConfig


def is_dead(
    redelivery: int, group: GroupConfig, *, times_max: int | None, sender_version: int
) -> bool:
    """Whether a message is a dead letter because another redelivery would exceed the limit. The
    sender may have a limit of its own instead of its group's.

    RocketMQ compares with `>=` where a broker reads the message that is sent back, because the
    stored count is that of the redelivery that failed, and with `>` where the consumer writes the
    copy, with the count of the next one. Both are the same limit; this function takes the number of
    the next one."""
    if times_max is None or sender_version < Version.V3_4_9:
        times_max = group.retry_max_times
    return redelivery > times_max
