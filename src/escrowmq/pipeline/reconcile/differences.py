"""Contradictions between halves, ENDs, final messages, consumers and the business.

Each difference has a class, evidence, and a proposed repair. A message younger than the grace is no
difference, because it may still be in flight: the tables are read one after another, and offsets
are committed only from time to time."""

from __future__ import annotations

import enum
from datetime import datetime
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from escrowmq.base.message import Topic
from escrowmq.pipeline.reconcile.fates import Fate


class DifferenceClass(enum.StrEnum):
    """Classes of differences."""

    PENDING = "pending"
    """A half that is open, and young enough. Not a difference, but counted in the sums."""

    OVERDUE = "overdue"
    PARKED = "parked"
    NO_FINAL = "committed-without-final"
    NO_HALF = "final-without-half"
    TWO_FINALS = "two-finals"
    FINAL_AFTER_ROLLBACK = "final-after-rollback"
    CONTRADICTED = "contradictory-ends"
    """Op records have several outcomes for one half."""

    FINAL_OF_OPEN = "final-of-open-half"
    """A half that was delivered although no op record names it. A broker will check it, or end it
    again."""

    PURGED = "purged"
    """A commit whose topic was deleted and recreated afterwards, or has no messages at all."""

    FINAL_ELSEWHERE = "final-elsewhere"
    """A final message in another topic than its half names."""

    COMMITTED_TWICE = "committed-twice"
    """A half that its producer sent twice, and both copies were committed."""

    CHANGED = "final-changed"
    """A final message with another tag, key or body than its half."""

    EARLY = "delivered-early"
    OP_WITHOUT_HALF = "op-without-half"
    """An op record names a half that never existed."""

    ANNOUNCED_ROLLED_BACK = "announced-but-rolled-back"
    NOT_CONSUMED = "not-consumed"
    ROW_WITHOUT_MESSAGE = "row-without-message"
    MESSAGE_WITHOUT_ROW = "message-without-row"
    ROW_TWICE = "row-twice"
    """The business has processed a message more than once."""


class Repair(enum.StrEnum):
    """What a repair of a difference does."""

    WAIT = "wait"
    ASK = "ask the producers"
    START_PRODUCER = "start a producer of the group"
    STORE_FINAL = "store the final message again"
    DEDUPLICATE = "consumers drop the second one by its id"
    BY_HAND = "decide by hand"
    RUN_QUERY = "start the streaming query again, or wait: the broker drops it in the end"
    CONSUME = "start a consumer of the group"
    DELIVER = "deliver the message to the business"
    TIMER = "look at the broker's timer: it is due, and may be delivered yet"
    NONE = "nothing, if the topic was deleted on purpose"


def transaction_differences(
    fates: DataFrame,
    *,
    now: datetime,
    overdue_s: int,
    grace_s: int = 0,
    begin_times: DataFrame | None = None,
) -> DataFrame:
    """Find differences between halves, op records and final messages. `begin_times` has the store
    time of the first present message of each topic (`broker`, `topic`, `beganAt`, null without
    one): messages committed before that were deleted with an earlier topic of that name.

    A half is overdue `overdue_s` after it was stored, or when the immunity that its producer
    requested is over, if that is later."""
    age_s = F.unix_timestamp(F.lit(now)) - F.unix_timestamp("storedAt")
    final_age_s = F.unix_timestamp(F.lit(now)) - F.unix_timestamp("finalAt")
    late_s = F.unix_timestamp(F.lit(now)) - F.col("lateMs") / 1_000
    is_open = F.col("fate").isin(Fate.PENDING, Fate.PARKED)
    is_committed = F.col("fate") == Fate.COMMITTED
    patience_s = F.greatest(F.lit(overdue_s), "immunityS")
    is_late = F.coalesce(late_s > overdue_s, F.lit(False))
    kind = (
        F.when(F.col("fate") == Fate.PARKED, DifferenceClass.PARKED)
        .when(is_open & (age_s > patience_s), DifferenceClass.OVERDUE)
        .when(is_open, DifferenceClass.PENDING)
        .when(
            is_committed & (F.col("finalsCount") == 0) & F.col("isPurged"), DifferenceClass.PURGED
        )
        .when(is_committed & ((F.col("finalsCount") == 0) | is_late), DifferenceClass.NO_FINAL)
        .when(
            F.col("fate").isin(Fate.ROLLED_BACK, Fate.EXPIRED) & (F.col("finalsCount") > 0),
            DifferenceClass.FINAL_AFTER_ROLLBACK,
        )
        .when(F.col("finalsCount") > 1, DifferenceClass.TWO_FINALS)
        .when(is_committed & F.col("isTwice"), DifferenceClass.COMMITTED_TWICE)
        .when(F.col("isContradicted"), DifferenceClass.CONTRADICTED)
        .when(F.size("changed") > 0, DifferenceClass.CHANGED)
        .when(F.col("isEarly"), DifferenceClass.EARLY)
        .when(
            F.col("isOpen") & is_committed & (final_age_s >= grace_s), DifferenceClass.FINAL_OF_OPEN
        )
    )
    repair = _repair_by_class(kind, _REPAIRS)
    # The timer may still deliver it: no other copy should be sent.
    repair = F.when((kind == DifferenceClass.NO_FINAL) & is_late, Repair.TIMER).otherwise(repair)
    repair = F.when(is_open & F.col("epoch").isNotNull(), Repair.RUN_QUERY).otherwise(repair)
    return (
        _with_begin_times(
            _with_committed_twice(fates.where(F.col("fate") != Fate.STORED_AGAIN)), begin_times
        )
        .select("*", kind.alias("class"))
        .where(F.col("class").isNotNull())
        .select(
            *_difference_columns(evidence=_evidence_of_half(), repair=repair, at=F.col("storedAt"))
        )
    )


_REPAIRS: Final = {
    DifferenceClass.PENDING: Repair.WAIT,
    DifferenceClass.OVERDUE: Repair.ASK,
    DifferenceClass.PARKED: Repair.START_PRODUCER,
    DifferenceClass.PURGED: Repair.NONE,
    DifferenceClass.NO_FINAL: Repair.STORE_FINAL,
    DifferenceClass.FINAL_AFTER_ROLLBACK: Repair.BY_HAND,
    DifferenceClass.TWO_FINALS: Repair.DEDUPLICATE,
    DifferenceClass.COMMITTED_TWICE: Repair.DEDUPLICATE,
    DifferenceClass.CONTRADICTED: Repair.BY_HAND,
    DifferenceClass.CHANGED: Repair.BY_HAND,
    DifferenceClass.EARLY: Repair.BY_HAND,
    DifferenceClass.FINAL_OF_OPEN: Repair.DEDUPLICATE,
}


def _evidence_of_half() -> Column:
    due_ms = F.when(F.col("isEarly"), F.col("dueMs")).otherwise(F.col("lateMs"))
    return _evidence(
        halfOffset=F.col("halfOffset"),
        logOffset=F.col("logOffset"),
        producerGroup=F.col("producerGroup"),
        checks=F.col("checks"),
        outcome=F.col("outcome"),
        endedAt=F.col("endedAt"),
        finalLogOffsets=F.concat_ws(",", F.col("finalLogOffsets")),
        changed=F.concat_ws(",", F.col("changed")),
        dueAt=F.timestamp_millis(due_ms),
        topicBegan=F.when(F.col("isPurged"), F.col("beganAt")),
    )


def _with_committed_twice(fates: DataFrame) -> DataFrame:
    """Add `isTwice`: another half of the same message was committed as well, on any broker."""
    done = fates.where((F.col("fate") == Fate.COMMITTED) & (F.col("finalsCount") > 0))
    twice = done.groupBy("messageId", "topic").count().where("count > 1")
    marks = twice.select("messageId", "topic", F.lit(True).alias("isMarked"))
    joined = fates.join(F.broadcast(marks), ["messageId", "topic"], "left")
    own = F.coalesce(F.col("isMarked") & (F.col("finalsCount") > 0), F.lit(False))
    return joined.withColumn("isTwice", own)


def _with_begin_times(fates: DataFrame, begin_times: DataFrame | None) -> DataFrame:
    """Add `isPurged`: the half's final message would be older than the topic's first message."""
    if begin_times is None:
        nothing = F.lit(None).cast("timestamp")
        return fates.withColumn("beganAt", nothing).withColumn("isPurged", F.lit(False))
    marks = begin_times.select("broker", "topic", "beganAt", F.lit(True).alias("isKnown"))
    joined = fates.join(F.broadcast(marks), ["broker", "topic"], "left")
    is_before = F.coalesce(F.col("endedAt") < F.col("beganAt"), F.col("beganAt").isNull())
    is_purged = F.coalesce(F.col("isKnown"), F.lit(False)) & is_before
    return joined.withColumn("isPurged", is_purged)


def finals_elsewhere(halves: DataFrame, finals: DataFrame) -> DataFrame:
    """Find final messages in topics that none of their halves names, although their halves
    exist."""
    homes = halves.groupBy("broker", "messageId").agg(F.collect_set("topic").alias("homes"))
    strays = finals.join(homes, ["broker", "messageId"]).where(
        (F.size("homes") > 0) & ~F.array_contains("homes", F.col("topic"))
    )
    evidence = _evidence(
        wanted=F.concat_ws(",", F.col("homes")),
        finalLogOffset=F.col("logOffset"),
        queueId=F.col("queueId"),
        queueOffset=F.col("queueOffset"),
    )
    return strays.withColumn("class", F.lit(DifferenceClass.FINAL_ELSEWHERE)).select(
        *_difference_columns(evidence=evidence, repair=F.lit(Repair.BY_HAND), at=F.col("storedAt"))
    )


def ops_without_half(ops: DataFrame, halves: DataFrame, *, until: datetime) -> DataFrame:
    """Find op records that name halves which never existed. Only op records from before `until` are
    examined, and only entries that name an offset after the first one in `halves`: every half after
    that is in `halves`. The named offset stands for the message."""
    begins = halves.groupBy("broker").agg(F.min("halfOffset").alias("begin"))
    named = ops.where(F.col("endedAt") < F.lit(until)).join(F.broadcast(begins), "broker")
    nothing = named.where(F.col("halfOffset") >= F.col("begin")).join(
        halves.select("broker", "halfOffset"), ["broker", "halfOffset"], "left_anti"
    )
    evidence = _evidence(halfOffset=F.col("halfOffset"), outcome=F.col("outcome"))
    return (
        nothing.withColumn("class", F.lit(DifferenceClass.OP_WITHOUT_HALF))
        .withColumn("topic", F.lit(Topic.HALF))
        .withColumn("messageId", F.concat(F.lit("#"), F.col("halfOffset")))
        .select(
            *_difference_columns(
                evidence=evidence, repair=F.lit(Repair.BY_HAND), at=F.col("endedAt")
            )
        )
    )


def finals_without_half(
    halves: DataFrame,
    finals: DataFrame,
    *,
    read: DataFrame,
    until: datetime | None = None,
    new_since: datetime | None = None,
) -> DataFrame:
    """Find final messages whose half is missing, or belongs to another message.

    `read` has the range of log offsets in which halves were read from each `broker`: `logBegin` to
    `logEnd`, the last half. A half after `logEnd` is missing only if its final message was stored
    before `until`. A half before `logBegin` is judged only with `new_since`, the end of the last
    run: all halves since the log's beginning were read by then. So the half of a final message
    stored after `new_since` is known.
    """
    place, stored = F.col("preparedOffset"), F.col("storedAt")
    ids = halves.select("broker", "messageId").distinct().withColumn("isKnown", F.lit(True))
    is_readable = place.between(F.col("logBegin"), F.col("logEnd"))
    if until is not None:
        is_old = stored < F.lit(until)
        is_readable |= (place > F.col("logEnd")) & is_old
        if new_since is not None:
            is_new = is_old & (stored >= F.lit(new_since)) & F.col("isKnown").isNull()
            # If no half was read lately, all of them are older.
            is_before = F.col("logBegin").isNull() | (place < F.col("logBegin"))
            is_readable |= is_before & is_new
    lost = (
        finals.join(F.broadcast(read), "broker", "left")
        .join(ids, ["broker", "messageId"], "left")
        .where(is_readable & place.isNotNull())
        .join(
            halves.select("broker", "messageId", F.col("logOffset").alias("preparedOffset")),
            ["broker", "messageId", "preparedOffset"],
            "left_anti",
        )
    )
    evidence = _evidence(
        finalLogOffset=F.col("logOffset"),
        preparedOffset=F.col("preparedOffset"),
        queueId=F.col("queueId"),
        queueOffset=F.col("queueOffset"),
    )
    return lost.withColumn("class", F.lit(DifferenceClass.NO_HALF)).select(
        *_difference_columns(evidence=evidence, repair=F.lit(Repair.BY_HAND), at=F.col("storedAt"))
    )


def unconsumed_finals(
    finals: DataFrame, offsets: DataFrame, *, now: datetime, grace_s: int
) -> DataFrame:
    """Find final messages that a group has not consumed. `offsets` has the offset (`committed`) of
    each `consumerGroup` in each queue (`broker`, `topic`, `queueId`) that it reads. If a queue has
    no offset while others of its topic do, the group never read it: perhaps it cannot reach that
    broker."""
    groups = offsets.select("topic", "consumerGroup").distinct()
    waiting = (
        _past_grace(finals, now=now, grace_s=grace_s)
        .join(F.broadcast(groups), "topic")
        .join(F.broadcast(offsets), ["broker", "topic", "queueId", "consumerGroup"], "left")
    )
    behind = waiting.where(F.col("queueOffset") >= F.coalesce("committed", F.lit(0)))
    evidence = _evidence(
        consumerGroup=F.col("consumerGroup"),
        queueId=F.col("queueId"),
        queueOffset=F.col("queueOffset"),
        committed=F.col("committed"),
    )
    return behind.withColumn("class", F.lit(DifferenceClass.NOT_CONSUMED)).select(
        *_difference_columns(evidence=evidence, repair=F.lit(Repair.CONSUME), at=F.col("storedAt"))
    )


def messages_without_row(
    finals: DataFrame, rows: DataFrame, *, now: datetime, grace_s: int
) -> DataFrame:
    """Find final messages without a row of the business. `rows` has a `messageId`, and `topic` if
    known."""
    settled = _past_grace(finals, now=now, grace_s=grace_s).withColumn(
        "name", _topic_without_namespace()
    )
    found = _unmatched_rows(settled, _with_topic_name(rows))
    evidence = _evidence(
        queueId=F.col("queueId"),
        queueOffset=F.col("queueOffset"),
        finalLogOffset=F.col("logOffset"),
    )
    return found.withColumn("class", F.lit(DifferenceClass.MESSAGE_WITHOUT_ROW)).select(
        *_difference_columns(evidence=evidence, repair=F.lit(Repair.DELIVER), at=F.col("storedAt"))
    )


def rows_without_message(
    rows: DataFrame, finals: DataFrame, *, now: datetime, grace_s: int
) -> DataFrame:
    """Find rows of the business without a final message. `rows` has a `messageId`, and `at` when it
    was written; `topic` and `broker` if known."""
    for name in ("topic", "broker"):
        if name not in rows.columns:
            rows = rows.withColumn(name, F.lit(None).cast("string"))
    old = rows.where(F.unix_timestamp("at") < F.unix_timestamp(F.lit(now)) - grace_s)
    known = _with_topic_name(finals)
    found = (
        _unmatched_rows(_with_topic_name(old).where("name is not null"), known)
        .unionByName(
            _unmatched_rows(_with_topic_name(old).where("name is null"), known, has_name=False)
        )
        .withColumn("class", F.lit(DifferenceClass.ROW_WITHOUT_MESSAGE))
    )
    evidence = _evidence(writtenAt=F.col("at"))
    return found.select(
        *_difference_columns(evidence=evidence, repair=F.lit(Repair.BY_HAND), at=F.col("at"))
    )


def duplicate_rows(rows: DataFrame) -> DataFrame:
    """Find messages with more than one row of the business."""
    for name in ("topic", "broker"):
        if name not in rows.columns:
            rows = rows.withColumn(name, F.lit(None).cast("string"))
    several = rows.groupBy("messageId", "topic", "broker").agg(
        F.count(F.lit(1)).alias("count"), F.max("at").alias("at"), F.min("at").alias("firstAt")
    )
    evidence = _evidence(rows=F.col("count"), firstAt=F.col("firstAt"), lastAt=F.col("at"))
    return (
        several.where("count > 1")
        .withColumn("class", F.lit(DifferenceClass.ROW_TWICE))
        .select(
            *_difference_columns(evidence=evidence, repair=F.lit(Repair.BY_HAND), at=F.col("at"))
        )
    )


def _topic_without_namespace() -> Column:
    """The user's name for a topic, without a namespace."""
    return F.substring_index("topic", "%", -1)


def _with_topic_name(frame: DataFrame) -> DataFrame:
    if "topic" not in frame.columns:
        frame = frame.withColumn("topic", F.lit(None).cast("string"))
    return frame.withColumn("name", _topic_without_namespace())


def _unmatched_rows(left: DataFrame, right: DataFrame, *, has_name: bool = True) -> DataFrame:
    """Return the rows of one table without a match in the other, by message and topic. A row of the
    business without a topic matches messages of any topic."""
    if not has_name:
        ids = right.select("messageId").hint("shuffle_hash")
        return left.join(ids, "messageId", "left_anti")
    named = right.where("name is not null").select("messageId", "name").hint("shuffle_hash")
    nameless = right.where("name is null").select("messageId").hint("shuffle_hash")
    found = left.join(named, ["messageId", "name"], "left_anti")
    return found.join(nameless, "messageId", "left_anti")


def combine(*found: DataFrame) -> DataFrame:
    """Combine all differences into one table."""
    return reduce(DataFrame.unionByName, found)


def _past_grace(finals: DataFrame, *, now: datetime, grace_s: int) -> DataFrame:
    is_old = F.unix_timestamp("storedAt") < F.unix_timestamp(F.lit(now)) - grace_s
    return finals.where(is_old & ~F.col("isWaiting"))


def _repair_by_class(kind: Column, repairs: dict[DifferenceClass, Repair]) -> Column:
    found = F.lit(None).cast("string")
    for of, repair in repairs.items():
        found = F.when(kind == of, repair).otherwise(found)
    return found


def _evidence(**parts: Column) -> Column:
    """Make the evidence of a difference: known facts, as texts by name. Unknown facts are left
    out."""
    pairs = [cell for name, part in parts.items() for cell in (F.lit(name), part.cast("string"))]
    return F.map_filter(F.create_map(*pairs), lambda _, text: text.isNotNull() & (text != ""))


def _difference_columns(*, evidence: Column, repair: Column, at: Column) -> list[Column]:
    return [
        F.col("class"),
        F.col("broker"),
        F.col("topic"),
        F.col("messageId"),
        at.alias("at"),
        evidence.alias("evidence"),
        repair.alias("repair"),
    ]
