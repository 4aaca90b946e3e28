"""What became of each half."""

from __future__ import annotations

import enum

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


class Fate(enum.StrEnum):
    """Where the transaction of a half stands."""

    PENDING = "pending"
    PARKED = "parked"
    """Pending, with nobody there to ask."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    EXPIRED = "expired"
    """Given up after its last check, or for its age."""

    STORED_AGAIN = "stored again"
    """RocketMQ stores a half again when it asks about it; the newest copy counts."""


def fates(
    halves: DataFrame,
    ops: DataFrame,
    finals: DataFrame,
    discards: DataFrame,
    parked: DataFrame | None = None,
) -> DataFrame:
    """The halves, each with `fate`, `outcome` (what its op record tells), `endedAt`, and the number
    of final messages (`finalsCount`, `finalAt` for the first). `parked` names halves (`broker`,
    `halfOffset`) that nobody answers for."""
    ended = ops.groupBy("broker", "halfOffset").agg(
        F.min("outcome").alias("outcome"),
        F.min("endedAt").alias("endedAt"),
        F.lit(True).alias("isNamed"),
    )
    keys = ("broker", "messageId")
    newest = halves.groupBy(*keys).agg(F.max("halfOffset").alias("newestOffset"))
    joined = (
        halves.join(ended, ["broker", "halfOffset"], "left")
        .join(newest, list(keys), "left")
        .join(discards, list(keys), "left")
        .join(_finals_of(halves, finals), ["broker", "halfOffset"], "left")
    )
    marks = parked.select("broker", "halfOffset", F.lit(True).alias("isParked")) if parked else None
    if marks is not None:
        joined = joined.join(marks, ["broker", "halfOffset"], "left")
    else:
        joined = joined.withColumn("isParked", F.lit(None).cast("boolean"))
    is_named = F.coalesce("isNamed", F.lit(False))
    has_final = F.coalesce("finalsCount", F.lit(0)) > 0
    is_untold = is_named & F.col("outcome").isNull()
    fate = (
        F.when(F.col("outcome") == "c", Fate.COMMITTED)
        .when(F.col("outcome") == "r", Fate.ROLLED_BACK)
        .when(F.col("outcome") == "x", Fate.EXPIRED)
        .when(is_untold & (F.col("newestOffset") > F.col("halfOffset")), Fate.STORED_AGAIN)
        .when(has_final, Fate.COMMITTED)
        .when(is_untold & F.col("givenUpAt").isNotNull(), Fate.EXPIRED)
        .when(is_untold, Fate.ROLLED_BACK)
        .when(F.col("isParked"), Fate.PARKED)
        .otherwise(Fate.PENDING)
    )
    return joined.select(
        *halves.columns,
        fate.alias("fate"),
        "outcome",
        "endedAt",
        F.coalesce("finalsCount", F.lit(0)).alias("finalsCount"),
        "finalAt",
        "finalLogOffsets",
    )


def _finals_of(halves: DataFrame, finals: DataFrame) -> DataFrame:
    """The final messages of each half: by the place of the half, or, where a delay has taken that
    away, by the message's id. One that waits for its time counts unless it has been delivered."""
    places = halves.select("broker", "halfOffset", "logOffset", "messageId", "isDelayed")
    by_place = places.where(~F.col("isDelayed")).join(
        finals.select(
            "broker", F.col("preparedOffset").alias("logOffset"), F.col("logOffset").alias("at"),
            "storedAt", "isWaiting",
        ),
        ["broker", "logOffset"],
    )  # fmt: skip
    by_id = places.where(F.col("isDelayed")).join(
        finals.select(
            "broker", "messageId", F.col("logOffset").alias("at"), "storedAt", "isWaiting"
        ),
        ["broker", "messageId"],
    )
    columns = ("broker", "halfOffset", "at", "storedAt", "isWaiting")
    found = by_place.select(*columns).unionByName(by_id.select(*columns))
    delivered = F.count(F.when(~F.col("isWaiting"), True))
    return found.groupBy("broker", "halfOffset").agg(
        F.when(delivered > 0, delivered).otherwise(F.lit(1)).alias("finalsCount"),
        F.min("storedAt").alias("finalAt"),
        F.sort_array(F.collect_list("at")).alias("finalLogOffsets"),
    )
