"""An executor's work on its part of a topic: pull, decode, return rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from escrowmq.base.message import Property
from escrowmq.client.core.subscription import Subscription
from escrowmq.pipeline.arrow.columns import Block, decode_columns
from escrowmq.pipeline.arrow.unwrapping import BATCH, unwrapped
from escrowmq.pipeline.brokers.options import Access
from escrowmq.pipeline.brokers.ranges import QueueRange
from escrowmq.pipeline.source.offsets import warn_of_loss
from escrowmq.pipeline.source.options import Pulling
from escrowmq.pipeline.source.pulling import Puller
from escrowmq.pipeline.workers import make_ready

BATCH_SIZE: Final = 4 << 20
"""Bytes of records per batch of rows; Spark is fastest with 1 to 10 MB."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that an executor needs besides its ranges; the driver sends them to it."""

    access: Access
    pulling: Pulling
    subscriptions: dict[str, Subscription]
    is_filtered: bool
    schema: bytes
    """The Arrow schema, serialized."""


def read_ranges(ranges: Sequence[QueueRange], reading: Reading) -> Iterator[Any]:
    """Read the rows of some ranges as Arrow batches. If rows are missing, raise DataLost, or log it
    if failOnDataLoss is off."""
    make_ready()
    schema = pa.ipc.read_schema(pa.py_buffer(reading.schema))
    puller = Puller(reading.access, reading.pulling)
    try:
        for wanted in ranges:
            subscription = reading.subscriptions[wanted.queue.topic]
            count = _Count()
            for data in _joined_chunks(puller.pull(wanted, subscription)):
                block = block_of(data, wanted)
                count.note(block)
                block = only_tagged(block, subscription)
                yield from decode_columns(block, schema, broker_name=wanted.queue.broker_name)
            if not reading.is_filtered:
                count.require(wanted, fails_on_loss=reading.pulling.fails_on_loss)
    finally:
        puller.close()


def block_of(data: bytes, wanted: QueueRange) -> Block:
    """Return the records of a range, without those beyond its ends."""
    block = Block(data)
    if ((block.sys_flag & BATCH) == BATCH).any():
        block = Block(unwrapped(data, block.starts, block.sys_flag))
    queue_offset = block.queue_offset
    return block.only((queue_offset >= wanted.low) & (queue_offset < wanted.high))


def only_tagged(block: Block, subscription: Subscription) -> Block:
    """Return the records with a wanted tag. Brokers compare only hashes, which may be equal for
    other tags."""
    if subscription.kind != "TAG" or subscription.tags.is_all or not len(block):
        return block
    tags = block.properties().values(Property.TAGS)
    wanted = pa.array(sorted(subscription.tags.tags), type=pa.string())
    return block.only(np.asarray(pc.is_in(tags, value_set=wanted)))


class _Count:
    """Verifies that no message of a queue is missing between those read."""

    def __init__(self) -> None:
        self._count = 0

    def note(self, block: Block) -> None:
        self._count += len(block)

    def require(self, wanted: QueueRange, *, fails_on_loss: bool) -> None:
        missing = wanted.count - self._count
        if missing > 0 and fails_on_loss:
            warn_of_loss(
                wanted.queue,
                wanted=wanted.high - missing,
                found=wanted.high,
                fails_on_loss=True,
                why=f"only {self._count} of the {wanted.count} messages from {wanted.low} on came",
            )


def _joined_chunks(pulled: Iterator[bytes]) -> Iterator[bytes]:
    parts: list[bytes] = []
    size = 0
    for data in pulled:
        parts.append(data)
        size += len(data)
        if size >= BATCH_SIZE:
            yield b"".join(parts)
            parts, size = [], 0
    if parts:
        yield b"".join(parts)
