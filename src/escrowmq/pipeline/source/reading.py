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
from escrowmq.pipeline.arrow.columns import RecordBlock, decode_columns
from escrowmq.pipeline.arrow.unwrapping import BATCH, split_inner_batches
from escrowmq.pipeline.brokers.options import ClusterAccess
from escrowmq.pipeline.brokers.ranges import QueueRange
from escrowmq.pipeline.source.offsets import report_loss
from escrowmq.pipeline.source.options import PullOptions
from escrowmq.pipeline.source.pulling import Puller
from escrowmq.pipeline.workers import speed_up_process

BATCH_SIZE: Final = 4 << 20
"""Bytes of records per batch of rows; Spark is fastest with 1 to 10 MB."""


class ReadSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that an executor needs besides its ranges; the driver sends them to it."""

    access: ClusterAccess
    pulling: PullOptions
    subscriptions: dict[str, Subscription]
    is_filtered: bool
    schema: bytes
    """The Arrow schema, serialized."""


def read_ranges(ranges: Sequence[QueueRange], reading: ReadSettings) -> Iterator[Any]:
    """Read the rows of some ranges as Arrow batches. If rows are missing, raise DataLost, or log it
    if failOnDataLoss is off."""
    speed_up_process()
    schema = pa.ipc.read_schema(pa.py_buffer(reading.schema))
    puller = Puller(reading.access, reading.pulling)
    try:
        for wanted in ranges:
            subscription = reading.subscriptions[wanted.queue.topic]
            count = _CompletenessCheck()
            for data in _joined_chunks(puller.pull(wanted, subscription)):
                block = records_in_range(data, wanted)
                count.add(block)
                block = only_tagged(block, subscription)
                yield from decode_columns(block, schema, broker_name=wanted.queue.broker_name)
            if not reading.is_filtered:
                count.require(wanted, fails_on_loss=reading.pulling.fails_on_loss)
    finally:
        puller.close()


def records_in_range(data: bytes, wanted: QueueRange) -> RecordBlock:
    """Return the records of a range, without those beyond its ends."""
    block = RecordBlock(data)
    if ((block.sys_flag & BATCH) == BATCH).any():
        block = RecordBlock(split_inner_batches(data, block.starts, block.sys_flag))
    queue_offset = block.queue_offset
    return block.select((queue_offset >= wanted.low) & (queue_offset < wanted.high))


def only_tagged(block: RecordBlock, subscription: Subscription) -> RecordBlock:
    """Return the records with a wanted tag. Brokers compare only hashes, which may be equal for
    other tags."""
    if subscription.kind != "TAG" or subscription.tags.is_all or not len(block):
        return block
    tags = block.properties().values(Property.TAGS)
    wanted = pa.array(sorted(subscription.tags.tags), type=pa.string())
    return block.select(np.asarray(pc.is_in(tags, value_set=wanted)))


class _CompletenessCheck:
    """Verifies that no message of a queue is missing between those read."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, block: RecordBlock) -> None:
        self._count += len(block)

    def require(self, wanted: QueueRange, *, fails_on_loss: bool) -> None:
        missing = wanted.count - self._count
        if missing > 0 and fails_on_loss:
            report_loss(
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
