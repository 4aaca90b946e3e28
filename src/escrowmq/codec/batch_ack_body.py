"""Decodes the body of BATCH_ACK_MESSAGE (200151): acks in batches, with short or long field
names."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from escrowmq.codec import fastjson
from escrowmq.errors import RemoteProtocolError

_LONG_NAMES: Final = {
    "consumerGroup": "c",
    "topic": "t",
    "retry": "r",
    "startOffset": "so",
    "queueId": "q",
    "reviveQueueId": "rq",
    "popTime": "pt",
    "invisibleTime": "it",
    "bitSet": "b",
}


class AckBatch(msgspec.Struct):
    """Acks of messages that were popped together (RocketMQ's BatchAck), as one bit for each
    message."""

    c: str
    t: str
    r: str = "0"
    so: int = 0
    q: int = 0
    rq: int = 0
    pt: int = 0
    it: int = 0
    b: str = ""


def decode_acks(data: bytes) -> list[AckBatch]:
    """Decode the batches of a body. Raises RemoteProtocolError if it is invalid."""
    if not data:
        return []
    raw: Any = fastjson.decode_fastjson(data)
    acks = (raw.get("acks") if isinstance(raw, dict) else None) or []
    try:
        return [
            msgspec.convert(
                {_LONG_NAMES.get(name, name): value for name, value in ack.items()},
                AckBatch,
                strict=False,
            )
            for ack in acks
        ]
    except (msgspec.ValidationError, AttributeError, TypeError) as error:
        raise RemoteProtocolError(f"body: {error}") from error
