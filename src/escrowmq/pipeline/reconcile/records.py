"""Halves, op records, final messages and discarded ones, out of a table of messages.

The table has the columns of the source (`schema.TYPES`), from a live broker or from store files,
EscrowMQ's or Apache RocketMQ's.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from escrowmq.base.extensions import DELAYED, EPOCH, OUTCOMES, TRANSACTION
from escrowmq.base.message import Property, SysFlag, Topic

SYSTEM_TOPICS: Final = (Topic.HALF, Topic.OP, Topic.CHECK_MAX_TIME, Topic.SCHEDULE, Topic.TIMER)
"""Where transactions leave records, beside the topics of the messages themselves."""

_DONE: Final = "d"


def _property(name: str) -> Column:
    return F.col("properties").getItem(name)


def _broker() -> Column:
    # Store files do not say whose they are; null would match nothing.
    return F.coalesce(F.col("brokerName"), F.lit("")).alias("broker")


def halves(messages: DataFrame) -> DataFrame:
    """One row for each half record."""
    return messages.where(F.col("topic") == Topic.HALF).select(
        _broker(),
        F.col("queueOffset").alias("halfOffset"),
        F.col("physicalOffset").alias("logOffset"),
        _property(Property.UNIQ_KEY).alias("messageId"),
        _property(Property.REAL_TOPIC).alias("topic"),
        _property(Property.PGROUP).alias("producerGroup"),
        F.col("bornTimestamp").alias("bornAt"),
        F.col("storeTimestamp").alias("storedAt"),
        F.coalesce(
            F.expr(f"try_cast(properties['{Property.TRANSACTION_CHECK_TIMES}'] as int)"), F.lit(0)
        ).alias("checks"),
        _property(TRANSACTION).alias("bundle"),
        _property(EPOCH).alias("epoch"),
        (F.coalesce(_property(DELAYED), F.lit("")) == "true").alias("isDelayed"),
    )


def ops(messages: DataFrame) -> DataFrame:
    """One row for each half that an op record names: `outcome` is c, r or x, or null where the
    record does not tell (RocketMQ's never do)."""
    named = messages.where((F.col("topic") == Topic.OP) & (F.col("tags") == _DONE)).select(
        _broker(),
        F.posexplode(F.split(F.col("body").cast("string"), ",")).alias("nth", "text"),
        _property(OUTCOMES).alias("outcomes"),
        F.col("storeTimestamp").alias("endedAt"),
    )
    letter = F.substring(F.col("outcomes"), F.col("nth") + 1, F.lit(1))
    return named.where(F.col("text").rlike("^[0-9]{1,18}$")).select(
        "broker",
        F.col("text").cast("long").alias("halfOffset"),
        F.when(letter.isin("c", "r", "x"), letter).alias("outcome"),
        "endedAt",
    )


def finals(messages: DataFrame) -> DataFrame:
    """One row for each message that a commit made visible, or will make visible when it is due.
    `preparedOffset` is where its half stands in the log; null for one that comes by a delay."""
    is_commit = F.col("sysFlag").bitwiseAND(SysFlag.TRANSACTION_MASK) == SysFlag.COMMIT
    is_delayed = F.coalesce(_property(DELAYED), F.lit("")) == "true"
    is_waiting = F.col("topic").isin(Topic.SCHEDULE, Topic.TIMER)
    is_inner = F.col("topic").isin(Topic.HALF, Topic.OP, Topic.CHECK_MAX_TIME)
    return messages.where((is_commit | is_delayed) & ~is_inner).select(
        _broker(),
        F.when(is_waiting, _property(Property.REAL_TOPIC)).otherwise(F.col("topic")).alias("topic"),
        "queueId",
        "queueOffset",
        F.col("physicalOffset").alias("logOffset"),
        F.when(is_commit & ~is_delayed, F.col("preparedTransactionOffset")).alias("preparedOffset"),
        F.col("msgId").alias("messageId"),
        F.col("storeTimestamp").alias("storedAt"),
        is_waiting.alias("isWaiting"),
    )


def discards(messages: DataFrame) -> DataFrame:
    """One row for each message that was given up after its last check."""
    return (
        messages.where(F.col("topic") == Topic.CHECK_MAX_TIME)
        .groupBy(_broker(), _property(Property.UNIQ_KEY).alias("messageId"))
        .agg(F.max("storeTimestamp").alias("givenUpAt"))
    )
