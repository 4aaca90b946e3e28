"""Sends a range of a topic to a topic again. The unique key of each copy is derived from the
position and the store time of its source, so that a second replay sends no new messages. Positions
alone would not do: after a topic was deleted, its successor has the same ones.

Order is kept: a message with an order key goes to the queue that every client chooses for the key,
and one without to a fixed queue for each queue of the source. A queue of the source is sent by one
task, one message after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
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
    "topic string, brokerName string, queueId int, queueOffset bigint, storeTimestamp timestamp, "
    "tags string, keys array<string>, body binary, properties map<string,string>, flag int"
)
"""The columns that a replay needs of each message."""

_SENT: Final = ("body", "tags", "keys", "properties", "flag", "brokerName", "queueId")
_OFFSETS: Final = ("startingOffsets", "endingOffsets", "startingOffsetsByTimestampStrategy")
_COUNTS: Final = "sent bigint, skipped bigint"


class ReplayTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Where the copies are sent, and how fast."""

    access: ClusterAccess
    topic: str
    per_s: float = 0.0
    """Messages per second on all tasks together; 0 is no limit."""


def with_copy_keys(messages: DataFrame, *, topic: str) -> DataFrame:
    """Add to rows of `SOURCE_COLUMNS` the unique key of each copy (`key`), and the one that older
    releases gave it (`olderKey`)."""
    places = [F.coalesce(F.col(name).cast("string"), F.lit("")) for name in
              ("topic", "brokerName", "queueId", "queueOffset")]  # fmt: skip
    stored = F.unix_millis("storeTimestamp").cast("string")
    return messages.withColumns(
        {"key": _hash(F.lit(topic), *places, stored), "olderKey": _hash(F.lit(topic), *places)}
    )


def _hash(*parts: Column) -> Column:
    return F.upper(F.substring(F.sha2(F.concat_ws("\x01", *parts), 256), 1, 32))


def mark_copied(keyed: DataFrame, present: DataFrame | None) -> DataFrame:
    """Add to each row whether its copy is in the target already (`isCopied`). `present` has the
    ids (`msgId`) and store times of the target's messages; without it no row counts as copied.

    Under a key of an older release, only a message that was stored after the row is its copy: an
    earlier one is the copy of a message in a deleted topic of the same name."""
    if present is None:
        return keyed.withColumn("isCopied", F.lit(False))
    last = present.groupBy("msgId").agg(F.max("storeTimestamp").alias("copiedAt"))
    older = last.withColumnsRenamed({"msgId": "olderKey", "copiedAt": "olderCopiedAt"})
    found = keyed.join(last.withColumnRenamed("msgId", "key"), "key", "left_outer")
    found = found.join(older, "olderKey", "left_outer")
    is_older_copy = F.col("olderCopiedAt") >= F.col("storeTimestamp")
    is_copied = F.col("copiedAt").isNotNull() | F.coalesce(is_older_copy, F.lit(False))
    return found.withColumn("isCopied", is_copied).drop("copiedAt", "olderCopiedAt")


def count_copies(keyed: DataFrame) -> tuple[int, int]:
    """Return the numbers of rows that are to be sent, and of those that are copied."""
    unsent, copied = F.count_if(~F.col("isCopied")), F.count_if("isCopied")
    return tuple(keyed.agg(unsent, copied).collect()[0])


def send_copies(keyed: DataFrame, target: ReplayTarget) -> DataFrame:
    """Return a frame that sends the rows that are not copied yet (`isCopied`) when it is computed;
    it has the numbers sent and skipped. Each queue of the source is sent in order, however the rows
    were partitioned before."""
    keyed = keyed.withColumn("body", F.when(~F.col("isCopied"), F.col("body")))
    if target.per_s:
        keyed = keyed.coalesce(1)  # a rate is kept by one
    else:
        keyed = keyed.repartition("topic", "brokerName", "queueId")
    keyed = keyed.sortWithinPartitions("queueOffset", "topic", "brokerName", "queueId")

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        yield from _send_batches(batches, target)

    return keyed.mapInArrow(write, _COUNTS)


def _send_batches(batches: Iterable[Any], target: ReplayTarget) -> Iterator[Any]:
    pace = RateLimiter(target.per_s)
    sent = skipped = 0
    with KeyedSender(target.access, group=GROUP) as sender:
        queues: Sequence[MessageQueue] = ()
        for batch in batches:
            unsent = batch.filter(pc.invert(batch.column("isCopied")))
            skipped += batch.num_rows - unsent.num_rows
            queues = queues or sender.queues(target.topic)
            keys = unsent.column("key").to_pylist()
            orders = map(_order_key, unsent.column("properties").to_pylist())
            rows = messages_of_rows(_message_columns(unsent), topic=target.topic, order_by="")
            for key, order_key, row in zip(keys, orders, rows, strict=True):
                pace.wait()
                if order_key:
                    row.message.order_key = order_key
                queue = None if order_key else _target_queue(row, queues)
                sender.send(row.message, key=key, properties=row.extra, queue=queue)
                sent += 1
    yield pa.RecordBatch.from_pydict({"sent": [sent], "skipped": [skipped]})


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


def present_copies(spark: SparkSession, options: dict[str, str], topic: str) -> DataFrame:
    """Return the ids and store times of all messages in a topic. `options` are those of a replay's
    source; options that select messages are ignored."""
    choices = {name.lower() for name in (*SELECTING_OPTIONS, *_OFFSETS)}
    kept = {name: value for name, value in options.items() if name.lower() not in choices}
    reader = spark.read.format("escrowmq").options(**kept)
    reader = reader.schema("msgId string, storeTimestamp timestamp")
    return reader.option("subscribe", topic).load()
