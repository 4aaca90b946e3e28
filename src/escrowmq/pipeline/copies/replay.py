"""Sends a range of a topic to a topic again. The unique key of each copy is derived from the
position of its source, so that a second replay sends no new messages.

Order is kept: a message with an order key goes to the queue that every client chooses for the key,
and one without to a fixed queue for each queue of the source. A queue of the source is sent by one
task, one message after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from escrowmq.base.message import Property
from escrowmq.client.core.routes import MessageQueue
from escrowmq.pipeline.brokers.keyed_sends import KeyedSender
from escrowmq.pipeline.brokers.options import ClusterAccess
from escrowmq.pipeline.brokers.pacing import RateLimiter
from escrowmq.pipeline.sink.rows import AddressedMessage, messages_of_rows
from escrowmq.pipeline.source.options import SELECTING_OPTIONS

GROUP: Final = "escrowmq-replay"
SOURCE_COLUMNS: Final = (
    "topic string, brokerName string, queueId int, queueOffset bigint, tags string, "
    "keys array<string>, body binary, properties map<string,string>"
)
"""The columns that a replay needs of each message."""

_SENT: Final = ("body", "tags", "keys", "properties", "brokerName", "queueId")
_OFFSETS: Final = ("startingOffsets", "endingOffsets", "startingOffsetsByTimestampStrategy")
_COUNT: Final = "partition int, sent bigint"


class ReplayTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Where the copies are sent, and how fast."""

    access: ClusterAccess
    topic: str
    per_s: float = 0.0
    """Messages per second on all tasks together; 0 is no limit."""


def with_copy_keys(messages: DataFrame, *, topic: str) -> DataFrame:
    """Add to rows of `SOURCE_COLUMNS` the unique key of each copy (`key`)."""
    places = [F.coalesce(F.col(name).cast("string"), F.lit("")) for name in
              ("topic", "brokerName", "queueId", "queueOffset")]  # fmt: skip
    key = F.upper(F.substring(F.sha2(F.concat_ws("\x01", F.lit(topic), *places), 256), 1, 32))
    return messages.withColumn("key", key)


def unsent_copies(keyed: DataFrame, present: DataFrame) -> DataFrame:
    """Return the rows whose copy is not in the target yet; `present` has the target's ids
    (`msgId`)."""
    return keyed.join(present.select(F.col("msgId").alias("key")), "key", "left_anti")


def send_copies(keyed: DataFrame, target: ReplayTarget) -> DataFrame:
    """Return a frame that sends the messages when it is computed; it has the number sent by
    partition. Each queue of the source is sent in order, however the rows were partitioned
    before."""
    if target.per_s:
        keyed = keyed.coalesce(1)  # a rate is kept by one
    else:
        keyed = keyed.repartition("topic", "brokerName", "queueId")
    keyed = keyed.sortWithinPartitions("queueOffset", "topic", "brokerName", "queueId")

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        yield from _send_batches(batches, target)

    return keyed.mapInArrow(write, _COUNT)


def _send_batches(batches: Iterable[Any], target: ReplayTarget) -> Iterator[Any]:
    from pyspark import TaskContext

    context = TaskContext.get()
    pace = RateLimiter(target.per_s)
    sent = 0
    with KeyedSender(target.access, group=GROUP) as sender:
        queues: Sequence[MessageQueue] = ()
        for batch in batches:
            queues = queues or sender.queues(target.topic)
            keys = batch.column("key").to_pylist()
            orders = map(_order_key, batch.column("properties").to_pylist())
            rows = messages_of_rows(_message_columns(batch), topic=target.topic, order_by="")
            for key, order_key, row in zip(keys, orders, rows, strict=True):
                pace.wait()
                if order_key:
                    row.message.order_key = order_key
                sender.send(
                    row.message, key=key, queue=None if order_key else _target_queue(row, queues)
                )
                sent += 1
    number = context.partitionId() if context is not None else 0
    yield pa.RecordBatch.from_arrays(
        [pa.array([number], type=pa.int32()), pa.array([sent], type=pa.int64())],
        names=["partition", "sent"],
    )


def _message_columns(batch: Any) -> Any:  # noqa: ANN401 - Arrow's
    return batch.select([name for name in _SENT if name in batch.schema.names])


def _order_key(properties: Any) -> str:  # noqa: ANN401 - Arrow's
    return dict(properties or ()).get(Property.SHARDING_KEY, "")


def _target_queue(row: AddressedMessage, queues: Sequence[MessageQueue]) -> MessageQueue | None:
    """Return the target queue for a queue of the source: by its number, on the same broker if that
    has queues of the topic."""
    if row.queue_id is None:
        return None
    own = [queue for queue in queues if queue.broker_name == row.broker_name] or queues
    return own[row.queue_id % len(own)]


def present_ids(spark: SparkSession, options: dict[str, str], topic: str) -> DataFrame:
    """Return the ids of all messages in a topic. `options` are those of a replay's source; options
    that select messages are ignored."""
    choices = {name.lower() for name in (*SELECTING_OPTIONS, *_OFFSETS)}
    kept = {name: value for name, value in options.items() if name.lower() not in choices}
    reader = spark.read.format("escrowmq").schema("msgId string").options(**kept)
    return reader.option("subscribe", topic).load()
