"""The fields of pop requests, and the receipts that identify popped messages."""

from __future__ import annotations

from typing import Final

import msgspec

from escrowmq.base.delay_levels import DELAY_LEVELS_S, RETRY_FIRST_LEVEL
from escrowmq.base.fixed_limits import POP_MESSAGES_MAX
from escrowmq.base.message import Property, StoredMessage
from escrowmq.client.core.redelivery import NEVER
from escrowmq.client.core.subscription import Subscription
from escrowmq.codec.pop_receipt import (
    PopReceipt,
    decode_offset_list,
    decode_receipt,
    encode_receipt,
    retry_kind,
    retry_topic,
)
from escrowmq.errors import RemoteProtocolError

ALL_QUEUES: Final = -1
_FROM_FIRST: Final = "0"
_FROM_LAST: Final = "1"


def pop_fields(
    wanted: Subscription,
    *,
    group: str,
    count_max: int,
    invisible_ms: int,
    poll_ms: int,
    now_ms: int,
    is_from_first: bool,
) -> dict[str, str]:
    """Return the header of a request that pops messages from any queue of a broker."""
    return {
        "consumerGroup": group,
        "topic": wanted.topic,
        "queueId": str(ALL_QUEUES),
        "maxMsgNums": str(min(count_max, POP_MESSAGES_MAX)),
        "invisibleTime": str(invisible_ms),
        "pollTime": str(poll_ms),
        "bornTime": str(now_ms),
        "initMode": _FROM_FIRST if is_from_first else _FROM_LAST,
        "expType": wanted.kind,
        "exp": wanted.expression,
        "order": "false",
    }


def receipt_of(stored: StoredMessage, ext: dict[str, str], *, broker_name: str) -> PopReceipt:
    """Return the receipt with which a message of a pop's answer is acknowledged. Redelivered
    messages carry one; for others it is built from the lists in the answer, as RocketMQ's clients
    do."""
    carried = stored.properties.get(Property.POP_CK)
    if carried:
        return decode_receipt(carried)
    kind = retry_kind(stored.topic)
    starts = decode_offset_list(ext.get("startOffsetInfo", ""))
    try:
        (start, *_) = starts[kind, str(stored.queue_id)]
        return PopReceipt(
            start_offset=start,
            pop_ms=int(ext["popTime"]),
            invisible_ms=int(ext["invisibleTime"]),
            revive_queue=int(ext["reviveQid"]),
            kind=kind,
            broker_name=broker_name,
            queue_id=stored.queue_id,
            queue_offset=stored.queue_offset,
        )
    except (KeyError, ValueError) as error:
        raise RemoteProtocolError(
            f"the pop's answer does not say where queue {stored.queue_id} begins: {error}"
        ) from error


def renewed_receipt(receipt: PopReceipt, ext: dict[str, str]) -> PopReceipt:
    """Return the new receipt of a message whose invisible time was changed, from the broker's
    answer. The old receipt is void; the new one covers this message alone."""
    try:
        return msgspec.structs.replace(
            receipt,
            start_offset=receipt.queue_offset,
            pop_ms=int(ext["popTime"]),
            invisible_ms=int(ext["invisibleTime"]),
            revive_queue=int(ext["reviveQid"]),
        )
    except (KeyError, ValueError) as error:
        raise RemoteProtocolError(
            f"the answer to a change of the invisible time has no valid receipt: {error}"
        ) from error


def ack_fields(receipt: PopReceipt, *, topic: str, group: str) -> dict[str, str]:
    """Return the fields that identify a popped message in ACK_MESSAGE, or in a change of its
    invisible time."""
    return {
        "consumerGroup": group,
        "topic": retry_topic(topic, group, receipt.kind),
        "queueId": str(receipt.queue_id),
        "offset": str(receipt.queue_offset),
        "extraInfo": encode_receipt(receipt),
        "bname": receipt.broker_name,
    }


def hidden_ms(level: int, *, deliveries_before: int) -> int:
    """Return for how many milliseconds a failed message is hidden: the time of its delay level, or
    without a level a time that grows with each failure."""
    assert level != NEVER, "that one must not be redelivered"
    chosen = level or min(RETRY_FIRST_LEVEL + deliveries_before, len(DELAY_LEVELS_S))
    return DELAY_LEVELS_S[chosen - 1] * 1000
