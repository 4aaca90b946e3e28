"""Determines the fate of each half."""

from __future__ import annotations

import enum
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from escrowmq.pipeline.reconcile.due_times import EARLY_MS


class Fate(enum.StrEnum):
    """The state of a half's transaction."""

    PENDING = "pending"
    PARKED = "parked"
    """Pending, without a connected producer to ask."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    EXPIRED = "expired"
    """Given up after its last check, or for its age."""

    STORED_AGAIN = "stored again"
    """An older copy of a half. RocketMQ stores a half again when it checks it, and both brokers
    when it is resumed; only the newest copy counts."""


_MESSAGE: Final = ("broker", "messageId")
_HOME: Final = (*_MESSAGE, "topic")
_COLLECTED: Final = "finals"


def fates_of_halves(
    halves: DataFrame,
    ops: DataFrame,
    finals: DataFrame,
    discards: DataFrame,
    parked: DataFrame | None = None,
) -> DataFrame:
    """Return the halves with their fates. `parked` has the halves (`broker`, `halfOffset`) without
    a connected producer.

    Added columns:
    - `fate`, and `outcome`, `endedAt` from the op record
    - `isContradicted`: op records have several outcomes
    - `isOpen`: no op record names the half
    - `finalsCount`, `finalAt`: number of final messages, and time of the first
    - `changed`: the parts in which a final message differs from the half
    - `isEarly`: a final message was visible before it was due
    - `lateMs`: when a missing final message was due
    """
    ended = ops.groupBy("broker", "halfOffset").agg(
        F.min("outcome").alias("outcome"),
        (F.min("outcome") != F.max("outcome")).alias("isContradicted"),
        F.min("endedAt").alias("endedAt"),
        F.lit(True).alias("isNamed"),
    )
    joined = halves.join(ended, ["broker", "halfOffset"], "left")
    if parked is None:
        joined = joined.withColumn("isParked", F.lit(None).cast("boolean"))
    else:
        marks = parked.select("broker", "halfOffset", F.lit(True).alias("isParked"))
        joined = joined.join(F.broadcast(marks), ["broker", "halfOffset"], "left")
    known = (
        _with_copies(joined)
        .join(_finals_by_message(finals), list(_HOME), "left")
        .join(discards, list(_MESSAGE), "left")
        .withColumn("own", _own_finals())
    )
    delivered = F.size(F.filter("own", lambda final: ~final["isWaiting"]))
    count = F.when(delivered > 0, delivered).otherwise(F.least(F.size("own"), F.lit(1)))
    counted = known.withColumn("finalsCount", count)
    return counted.select(
        *halves.columns,
        _fate_column().alias("fate"),
        "outcome",
        "endedAt",
        F.coalesce("isContradicted", F.lit(False)).alias("isContradicted"),
        (~F.coalesce("isNamed", "isDecided", F.lit(False))).alias("isOpen"),
        "finalsCount",
        F.array_min(F.transform("own", lambda final: final["storedAt"])).alias("finalAt"),
        F.sort_array(F.transform("own", lambda final: final["at"])).alias("finalLogOffsets"),
        _changed_parts().alias("changed"),
        F.exists("own", _is_early).alias("isEarly"),
        F.when(delivered == 0, F.array_max(F.transform("own", lambda final: final["dueMs"]))).alias(
            "lateMs"
        ),
    )


def _with_copies(joined: DataFrame) -> DataFrame:
    """Add columns about the copies of each half.

    - `isStoredAgain`: a newer copy of the half counts
    - `isDecided`: an op record without an outcome names the half, or an older copy of it; in the
      second case RocketMQ keeps asking nevertheless
    - `places`: the log offsets of the message's valid copies; several if its producer got no answer
      and sent the half again
    """
    copies = Window.partitionBy(*_MESSAGE)
    renewed = F.max(F.when(F.col("isRenewal"), F.col("halfOffset"))).over(copies)
    is_open = F.col("outcome").isNull() | (F.col("outcome") == "x")
    is_again = F.coalesce(is_open & (renewed > F.col("halfOffset")), F.lit(False))
    current = F.when(~F.col("isStoredAgain"), F.col("logOffset"))
    is_untold = F.coalesce(F.col("isNamed") & F.col("outcome").isNull(), F.lit(False))
    is_decided = is_untold | F.max(is_untold & F.col("isStoredAgain")).over(copies)
    return (
        joined.withColumn("isStoredAgain", is_again)
        .withColumn("isDecided", is_decided)
        .withColumn("places", F.collect_set(current).over(copies))
    )


def _finals_by_message(finals: DataFrame) -> DataFrame:
    return finals.groupBy(*_HOME).agg(
        F.collect_list(
            F.struct(
                "preparedOffset",
                F.col("logOffset").alias("at"),
                "storedAt",
                "isWaiting",
                "content",
                "dueMs",
            )
        ).alias(_COLLECTED)
    )


def _changed_parts() -> Column:
    """The parts of a message that differ from its half: `tag`, `keys`, `body`."""

    def differs(part: str) -> Column:
        mine = F.col("content")[part]
        return F.exists("own", lambda final: ~final["isWaiting"] & (final["content"][part] != mine))

    names = [F.when(differs(part), F.lit(part)) for part in ("tag", "keys", "body")]
    return F.filter(F.array(*names), lambda name: name.isNotNull())


def _is_early(final: Column) -> Column:
    due_ms = F.col("dueMs") - EARLY_MS
    return F.coalesce(
        ~final["isWaiting"] & (F.unix_millis(final["storedAt"]) < due_ms), F.lit(False)
    )


def _own_finals() -> Column:
    """The final messages of a half; none if a newer copy counts. A final message does not always
    name this copy: the END may have named an older one, and a delay removes the half's offset. So
    all final messages with this id count, except those that name another valid copy."""

    def is_own(final: Column) -> Column:
        prepared = final["preparedOffset"]
        is_anothers = F.array_contains("places", prepared) & (prepared != F.col("logOffset"))
        return ~F.coalesce(is_anothers, F.lit(False))

    nothing = F.filter(_COLLECTED, lambda _: F.lit(False))
    own = F.when(F.col("isStoredAgain"), nothing).otherwise(F.filter(_COLLECTED, is_own))
    return F.coalesce(own, F.array().cast(_FINALS))


_FINALS: Final = (
    "array<struct<preparedOffset:bigint,at:bigint,storedAt:timestamp,isWaiting:boolean,"
    "content:struct<tag:string,keys:string,body:binary>,dueMs:bigint>>"
)


def _fate_column() -> Column:
    is_given_up = F.coalesce(F.col("givenUpAt") >= F.col("storedAt"), F.lit(False))
    return (
        F.when(F.col("isStoredAgain"), Fate.STORED_AGAIN)
        .when(F.col("outcome") == "c", Fate.COMMITTED)
        .when(F.col("outcome") == "r", Fate.ROLLED_BACK)
        .when(F.col("outcome") == "x", Fate.EXPIRED)
        .when(F.col("finalsCount") > 0, Fate.COMMITTED)
        .when(F.col("isDecided"), Fate.ROLLED_BACK)
        # RocketMQ names no half that it gives up in an op record.
        .when(is_given_up, Fate.EXPIRED)
        .when(F.col("isParked"), Fate.PARKED)
        .otherwise(Fate.PENDING)
    )
