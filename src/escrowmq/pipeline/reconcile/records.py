"""Extracts halves, op records, final messages and discarded halves from a table of messages.

The table has the columns of the source (`schema.TYPES`), from a live broker or from store files,
EscrowMQ's or Apache RocketMQ's."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from escrowmq.base.fixed_limits import CHECK_IMMUNITY_MAX_S
from escrowmq.base.message import Property, SysFlag, Topic
from escrowmq.base.own_properties import DELAYED, EPOCH, OUTCOMES, REDONE, TRANSACTION
from escrowmq.pipeline.reconcile.due_times import delayed_record_due_ms, earliest_final_ms

SYSTEM_TOPICS: Final = (Topic.HALF, Topic.OP, Topic.CHECK_MAX_TIME, Topic.SCHEDULE, Topic.TIMER)
"""Topics in which the brokers store records of transactions, besides the messages' own topics."""

_DONE: Final = "d"
_OFFSET: Final = "^[0-9]{1,18}$"


def _property(name: str) -> Column:
    return F.col("properties").getItem(name)


def _broker() -> Column:
    # Store files do not name their broker; null would match nothing.
    return F.coalesce(F.col("brokerName"), F.lit("")).alias("broker")


def halves(messages: DataFrame) -> DataFrame:
    """One row per half record."""
    return messages.where(F.col("topic") == Topic.HALF).select(
        _broker(),
        F.col("queueOffset").alias("halfOffset"),
        F.col("physicalOffset").alias("logOffset"),
        F.col("msgId").alias("messageId"),
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
        (
            _property(Property.TRANSACTION_CHECK_TIMES).isNotNull()
            | _property(Property.TRAN_PREPARED_QUEUE_OFFSET).isNotNull()
        ).alias("isRenewal"),
        _compared_content().alias("content"),
        F.when(_property(DELAYED) == "true", earliest_final_ms()).alias("dueMs"),
        _immunity_s().alias("immunityS"),
    )


def _immunity_s() -> Column:
    """How long the broker does not check the half, because its producer said so (as
    `txn/check_immunity`)."""
    text = _property(Property.CHECK_IMMUNITY_TIME)
    longest = F.lit(CHECK_IMMUNITY_MAX_S).cast("long")
    return F.when(text.rlike(_OFFSET), F.least(text.cast("long"), longest)).otherwise(F.lit(0))


def ops(messages: DataFrame) -> DataFrame:
    """One row per half named by an op record: `outcome` is c, r or x, or null if the record does
    not say (RocketMQ's never do). Entries that name no half are ignored, as brokers do."""
    return (
        _op_entries(messages)
        .where(F.col("text").rlike(_OFFSET))
        .select("broker", F.col("text").cast("long").alias("halfOffset"), "outcome", "endedAt")
    )


def op_record_halves(messages: DataFrame) -> DataFrame:
    """The pairs of op records (`broker`, `queueOffset`) and the halves that they name
    (`halfOffset`)."""
    parts = F.split(F.col("body").cast("string"), ",")
    named = messages.where((F.col("topic") == Topic.OP) & (F.col("tags") == _DONE)).select(
        _broker(), "queueOffset", F.explode(parts).alias("text")
    )
    return named.where(F.col("text").rlike(_OFFSET)).select(
        "broker", "queueOffset", F.col("text").cast("long").alias("halfOffset")
    )


def _op_entries(messages: DataFrame) -> DataFrame:
    parts = F.array_remove(F.split(F.col("body").cast("string"), ","), "")
    letters = _property(OUTCOMES)
    records = messages.where((F.col("topic") == Topic.OP) & (F.col("tags") == _DONE)).select(
        _broker(),
        parts.alias("parts"),
        # If the number of letters and offsets differs, the letters mean nothing.
        F.when(F.length(letters) == F.size(parts), letters).alias("letters"),
        F.col("storeTimestamp").alias("endedAt"),
    )
    letter = F.substring(F.col("letters"), F.col("nth") + 1, F.lit(1))
    return records.select("*", F.posexplode("parts").alias("nth", "text")).select(
        "broker", "text", F.when(letter.isin("c", "r", "x"), letter).alias("outcome"), "endedAt"
    )


def malformed_counts(messages: DataFrame) -> DataFrame:
    """One row with the numbers of malformed records: `namelessCount` entries of op records that
    name no half, `strangeCount` records in the op topic that are no op records, `homelessCount`
    halves without topic or group."""
    is_op, is_half = F.col("topic") == Topic.OP, F.col("topic") == Topic.HALF
    is_done = F.coalesce(F.col("tags"), F.lit("")) == _DONE
    parts = F.array_remove(F.split(F.col("body").cast("string"), ","), "")
    nameless = F.size(F.filter(parts, lambda text: ~text.rlike(_OFFSET)))
    is_homeless = _property(Property.REAL_TOPIC).isNull() | _property(Property.PGROUP).isNull()
    return messages.agg(
        _sum_or_zero(F.when(is_op & is_done, nameless)).alias("namelessCount"),
        F.count(F.when(is_op & ~is_done, True)).alias("strangeCount"),
        F.count(F.when(is_half & is_homeless, True)).alias("homelessCount"),
    )


def _sum_or_zero(number: Column) -> Column:
    return F.coalesce(F.sum(number), F.lit(0))


def finals(messages: DataFrame) -> DataFrame:
    """One row per message that a commit made visible, immediately or when it was due.
    `preparedOffset` is the log offset of its half; null for a delayed message, or one that was
    stored again."""
    is_commit, is_waiting = _is_commit(), _is_waiting()
    return messages.where(is_final()).select(
        _broker(),
        _own_topic().alias("topic"),
        "queueId",
        "queueOffset",
        F.col("physicalOffset").alias("logOffset"),
        F.when(is_commit & ~_has_no_half_offset(), F.col("preparedTransactionOffset")).alias(
            "preparedOffset"
        ),
        F.col("msgId").alias("messageId"),
        F.col("storeTimestamp").alias("storedAt"),
        is_waiting.alias("isWaiting"),
        _compared_content().alias("content"),
        F.when(is_waiting, delayed_record_due_ms()).alias("dueMs"),
    )


def _compared_content() -> Column:
    """The parts that a half and its final message have in common: `tag`, `keys`, and `body`, a
    digest, which is null if bodies are not compared."""
    return F.struct(
        F.coalesce(F.col("tags"), F.lit("")).alias("tag"),
        F.coalesce(_property(Property.KEYS), F.lit("")).alias("keys"),
        F.col("body").alias("body"),
    )


def is_final() -> Column:
    """Whether a message comes from a transaction, and is delivered for the first time: copies that
    a consumer returned for a retry do not count."""
    is_inner = F.col("topic").isin(Topic.HALF, Topic.OP, Topic.CHECK_MAX_TIME)
    own = F.coalesce(_own_topic(), F.lit(""))
    is_copy = own.startswith(Topic.RETRY_PREFIX) | own.startswith(Topic.DLQ_PREFIX)
    return (_is_commit() | _has_no_half_offset()) & ~is_inner & ~is_copy


def is_of_transactions() -> Column:
    """Whether a record belongs to a transaction."""
    own = (Topic.HALF, Topic.OP, Topic.CHECK_MAX_TIME)
    return F.col("topic").isin(*own) | is_final()


def _is_waiting() -> Column:
    return F.col("topic").isin(Topic.SCHEDULE, Topic.TIMER)


def _own_topic() -> Column:
    return F.when(_is_waiting(), _property(Property.REAL_TOPIC)).otherwise(F.col("topic"))


def _is_commit() -> Column:
    return F.col("sysFlag").bitwiseAND(SysFlag.TRANSACTION_MASK) == SysFlag.COMMIT


def _has_no_half_offset() -> Column:
    is_delayed = F.coalesce(_property(DELAYED), F.lit("")) == "true"
    return is_delayed | _property(REDONE).isNotNull()


def discards(messages: DataFrame) -> DataFrame:
    """One row per half that was given up after its last check."""
    return (
        messages.where(F.col("topic") == Topic.CHECK_MAX_TIME)
        .groupBy(_broker(), F.col("msgId").alias("messageId"))
        .agg(F.max("storeTimestamp").alias("givenUpAt"))
    )
