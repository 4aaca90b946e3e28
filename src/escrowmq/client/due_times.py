"""Computes when the message of a half becomes visible, if it is delayed."""

from __future__ import annotations

from escrowmq.base.delay_levels import DELAY_LEVELS_S
from escrowmq.base.fixed_limits import LONG_MAX
from escrowmq.base.message import Property
from escrowmq.base.own_properties import DELAYED
from escrowmq.client.core.message import ReceivedMessage
from escrowmq.codec.properties import parse_number


def due_ms(half: ReceivedMessage) -> int:
    """Return the earliest time, by its broker's clock, at which the message of a half may become
    visible. A delay counts from the commit, so from the half's store time at the earliest. Without
    a delay, return the half's store time. If there are several, the one counts that counts for
    brokers (`delivery/delayed_messages`)."""
    if half.system.get(DELAYED) != "true":  # brokers deliver all others at once
        return half.stored_ms
    level = min(_parse_number(half, Property.DELAY) or 0, len(DELAY_LEVELS_S))
    if level > 0:
        return half.stored_ms + DELAY_LEVELS_S[level - 1] * 1_000
    for name, unit_ms in ((Property.TIMER_DELAY_SEC, 1_000), (Property.TIMER_DELAY_MS, 1)):
        if name in half.system:
            return half.stored_ms + (_parse_number(half, name) or 0) * unit_ms
    return max(half.stored_ms, _parse_number(half, Property.TIMER_DELIVER_MS) or 0)


def _parse_number(half: ReceivedMessage, name: str) -> int | None:
    return parse_number(half.system.get(name), most=LONG_MAX)
