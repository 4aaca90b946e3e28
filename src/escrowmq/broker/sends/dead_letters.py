"""When a message is a dead letter."""

from __future__ import annotations

from escrowmq.base.codes import Version
from escrowmq.delivery.groups import GroupConfig


def is_dead(
    redelivery: int, group: GroupConfig, *, times_max: int | None, sender_version: int
) -> bool:
    """Whether a message is not delivered again because that would be one redelivery too many. The
    sender may have a limit of its own for its group's.

    RocketMQ compares by `>=` where a broker reads the message that is sent back, as the stored
    count is that of the redelivery that failed, and by `>` where the consumer writes the copy, with
    the count of the next one. Both are the same limit; this takes the number of the next one.
    """
    if times_max is None or sender_version < Version.V3_4_9:
        times_max = group.retry_max_times
    return redelivery > times_max
