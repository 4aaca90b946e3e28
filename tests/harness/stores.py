"""What tests of a store share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from escrowmq.base.message import Message
from escrowmq.codec.properties import encode_properties
from escrowmq.store.store import PutResult, Store


def put_batch(store: Store, messages: Sequence[Message], now_ms: int) -> list[PutResult]:
    """Messages that differ in what a batch's may differ in, as one batch."""
    pieces = [(m.flag, m.body, encode_properties(m.properties), m.properties) for m in messages]
    return store.batches.put(messages[0], pieces, now_ms)


def split(data: bytes) -> Iterator[bytes]:
    """The records of which a pull's body is made."""
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        yield data[at : at + size]
        at += size
