"""Reserved names of properties."""

from __future__ import annotations

from typing import Final

from escrowmq.base.message import Property
from escrowmq.base.own_properties import (
    CHECKER,
    DEAD_LETTER,
    DELAYED,
    MARKER,
    ORDER_KEY,
    REDONE,
    TRANSACTION,
)

RESERVED: Final = frozenset(
    {
        value
        for name, value in vars(Property).items()
        if name.isupper() and isinstance(value, str)
    }
) | {
    "MIN_OFFSET", "MAX_OFFSET", "BUYER_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG",
    "EXTEND_UNIQ_INFO", "CONSUME_START_TIME", "DUP_INFO", "INSTANCE_ID", "ARRIVE_TIME",
    "POP_CK_OFFSET", "PROPERTY_FORWARD_QUEUE_ID", "REDIRECT", "TIMER_DELAY_LEVEL",
    TRANSACTION, DELAYED, ORDER_KEY, CHECKER, MARKER, DEAD_LETTER,
    REDONE,
}  # fmt: skip
"""Names of properties that have a meaning of their own; users' properties must have other names."""
