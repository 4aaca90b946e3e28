"""Names of properties that users cannot have for their own."""

from __future__ import annotations

from typing import Final

from escrowmq.base.message import Property

RESERVED: Final = frozenset(
    {
        value
        for name, value in vars(Property).items()
        if name.isupper() and isinstance(value, str)
    }
) | {
    "MIN_OFFSET", "MAX_OFFSET", "BUYER_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG",
    "EXTEND_UNIQ_INFO", "CONSUME_START_TIME", "DUP_INFO", "INSTANCE_ID", "ARRIVE_TIME",
    "POP_CK_OFFSET", "PROPERTY_FORWARD_QUEUE_ID", "REDIRECT", "INNER_MULTI_DISPATCH",
    "INNER_MULTI_QUEUE_OFFSET", "TRACE_CONTEXT", "TIMER_DELAY_LEVEL", "__BORNHOST",
    "BORN_TIMESTAMP", "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID",
    "escrowTransaction", "escrowDelay", "escrowOrderKey", "escrowChecker", "escrowMarker",
}  # fmt: skip
"""Names of properties that carry meaning; users' own must be others."""
