"""Duplicate deliveries: messages that are in a topic twice, and messages that consumers returned
for a retry."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from escrowmq.base.message import Property, Topic
from escrowmq.pipeline.reconcile.partitioned_table import day_of

TWICE: Final = (
    "topic string, messageId string, count bigint, firstAt timestamp, lastAt timestamp, "
    "places array<string>, day date"
)
GIVEN_BACK: Final = (
    "consumerGroup string, topic string, deliveriesBefore int, count bigint, day date"
)


def duplicate_messages(messages: DataFrame) -> DataFrame:
    """Return the messages whose unique key is in a topic more than once, with their positions
    (`broker/queue@offset`). The day is that of the first copy."""
    is_own = ~F.col("topic").startswith(Topic.RETRY_PREFIX) & ~F.col("topic").startswith(
        Topic.DLQ_PREFIX
    )
    place = F.concat(
        F.coalesce("brokerName", F.lit("")), F.lit("/"), F.col("queueId").cast("string"),
        F.lit("@"), F.col("queueOffset").cast("string"),
    )  # fmt: skip
    found = (
        messages.where(is_own)
        .groupBy("topic", F.col("msgId").alias("messageId"))
        .agg(
            F.count(F.lit(1)).alias("count"),
            F.min("storeTimestamp").alias("firstAt"),
            F.max("storeTimestamp").alias("lastAt"),
            F.sort_array(F.collect_list(place)).alias("places"),
        )
    )
    return found.where(F.col("count") > 1).withColumn("day", day_of("firstAt"))


def retry_counts(messages: DataFrame) -> DataFrame:
    """Count the messages that consumers have returned, which are in their groups' retry topics: by
    day, group, topic and number of earlier deliveries."""
    return (
        messages.where(F.col("topic").startswith(Topic.RETRY_PREFIX))
        .select(
            F.substring("topic", len(Topic.RETRY_PREFIX) + 1, 255).alias("consumerGroup"),
            F.col("properties").getItem(Property.RETRY_TOPIC).alias("topic"),
            F.col("reconsumeTimes").alias("deliveriesBefore"),
            day_of("storeTimestamp").alias("day"),
        )
        .groupBy("day", "consumerGroup", "topic", "deliveriesBefore")
        .agg(F.count(F.lit(1)).alias("count"))
    )
