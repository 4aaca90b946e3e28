"""The way from the half message to the commit: how many halves are committed, and how long that
takes.

There are two times. `commit` is from the store time of the half to that of the final message, both
by the broker's clock. `whole` starts at the message's creation, by its producer's clock. It is
negative if the producer's clock is far enough ahead.
"""

from __future__ import annotations

import datetime as dt
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from escrowmq.pipeline.reconcile.fates import Fate
from escrowmq.pipeline.reconcile.partitioned_table import day_of

TRANSACTIONS: Final = (
    "broker string, messageId string, topic string, producerGroup string, bornAt timestamp, "
    "startedAt timestamp, fate string, endedAt timestamp, finalAt timestamp, finalsCount int, "
    "checks int, day date"
)
FUNNEL: Final = (
    "topic string, producerGroup string, started bigint, committed bigint, rolledBack bigint, "
    "expired bigint, pending bigint, parked bigint, checked bigint, doubled bigint, "
    "commitMs array<bigint>, wholeMs array<bigint>, day date"
)
PERCENTILES: Final = (0.5, 0.95, 0.99)
"""The percentiles in the columns `commitMs` and `wholeMs`."""

AGE_BANDS_S: Final = (
    ("under 1 min", 60),
    ("1 to 10 min", 600),
    ("10 to 60 min", 3_600),
    ("1 to 24 h", 86_400),
    ("over a day", 0),
)
"""Age bands of open halves: the upper end of each, in seconds; 0 for the last, which has no end."""

_MESSAGE: Final = ("broker", "messageId")
_RANK: Final = (
    Fate.COMMITTED,
    Fate.ROLLED_BACK,
    Fate.EXPIRED,
    Fate.PARKED,
    Fate.PENDING,
    Fate.STORED_AGAIN,
)


def transaction_rows(fates: DataFrame) -> DataFrame:
    """Return one row per transactional message. Copies of a half that was stored or sent again are
    one message. It begins with its first copy, and the copy that got furthest determines its
    fate. `isRenewed`: the first of these copies is not the message's first one."""
    merged = fates.groupBy(*_MESSAGE).agg(
        _furthest(-F.col("halfOffset")).alias("best"),
        F.min("bornAt").alias("bornAt"),
        F.min("storedAt").alias("startedAt"),
        F.sum("finalsCount").cast("int").alias("finalsCount"),
        F.max("checks").alias("checks"),
        F.min_by("isRenewal", "halfOffset").alias("isRenewed"),
    )
    found = merged.select(*_MESSAGE, "best.*", "bornAt", "startedAt", "finalsCount", "checks",
                          "isRenewed")  # fmt: skip
    return found.withColumn("day", day_of("startedAt"))


def earlier_rows(found: DataFrame, known: DataFrame) -> DataFrame:
    """Return the rows of earlier runs (`known`) for messages whose first copies were not read this
    time: a broker stores a half again, perhaps days after the first copy."""
    renewed = found.where("isRenewed").select(*_MESSAGE)
    return known.join(F.broadcast(renewed), [*_MESSAGE], "left_semi")


def merge_rows(found: DataFrame, earlier: DataFrame) -> DataFrame:
    """Merge the rows of this run with those of earlier ones, so that each message keeps its
    beginning, its day, and the furthest fate. Whether it is open is what this run says."""
    is_open = F.col("fate").isin(Fate.PENDING, Fate.PARKED)
    fate = F.when(is_open, F.lit(str(Fate.STORED_AGAIN))).otherwise(F.col("fate"))
    columns = [name for name in found.columns if name != "isRenewed"]
    rows = found.select(*columns, F.lit(1).alias("nth")).unionByName(
        earlier.withColumn("fate", fate).select(*columns, F.lit(2).alias("nth"))
    )
    merged = rows.groupBy(*_MESSAGE).agg(
        _furthest(F.col("nth")).alias("best"),
        F.min("bornAt").alias("bornAt"),
        F.min("startedAt").alias("startedAt"),
        F.max("finalsCount").alias("finalsCount"),
        F.max("checks").alias("checks"),
    )
    chosen = merged.select(*_MESSAGE, "best.*", "bornAt", "startedAt", "finalsCount", "checks")
    return chosen.withColumn("day", day_of("startedAt"))


def _furthest(then: Column) -> Column:
    """The fate of the row that got furthest; of equal ones, that with the smallest `then`."""
    rank = F.array_position(F.array(*[F.lit(str(fate)) for fate in _RANK]), F.col("fate"))
    return F.min_by(
        F.struct("topic", "producerGroup", "fate", "endedAt", "finalAt"), F.struct(rank, then)
    )


def funnel_sums(found: DataFrame) -> DataFrame:
    """Return, by day, topic and producer group, the number of transactions with each fate, and
    percentiles of the times to commit."""
    began = {"commitMs": "startedAt", "wholeMs": "bornAt"}
    times = [
        F.percentile_approx(_ms_until_final(since), list(PERCENTILES), 10_000).alias(name)
        for name, since in began.items()
    ]
    return found.groupBy("day", "topic", "producerGroup").agg(
        F.count(F.lit(1)).alias("started"),
        *[_count_fate(fate).alias(name) for name, fate in _COUNTS.items()],
        F.count_if(F.col("checks") > 0).alias("checked"),
        F.count_if(F.col("finalsCount") > 1).alias("doubled"),
        *times,
    )


_COUNTS: Final = {
    "committed": Fate.COMMITTED,
    "rolledBack": Fate.ROLLED_BACK,
    "expired": Fate.EXPIRED,
    "pending": Fate.PENDING,
    "parked": Fate.PARKED,
}


def open_halves_by_age(found: DataFrame, *, now: dt.datetime) -> DataFrame:
    """Return the number of open halves by topic, producer group and age: `band` (the index in
    `AGE_BANDS_S`), `count`, and the age of the oldest (`oldestS`)."""
    age_s = F.unix_timestamp(F.lit(now)) - F.unix_timestamp("startedAt")
    band = F.lit(len(AGE_BANDS_S) - 1)
    for number in range(len(AGE_BANDS_S) - 2, -1, -1):
        band = F.when(age_s < AGE_BANDS_S[number][1], F.lit(number)).otherwise(band)
    is_open = F.col("fate").isin(Fate.PENDING, Fate.PARKED)
    return (
        found.where(is_open)
        .groupBy("topic", "producerGroup", band.alias("band"))
        .agg(F.count(F.lit(1)).alias("count"), F.max(age_s).alias("oldestS"))
    )


def _count_fate(fate: Fate) -> Column:
    return F.count_if(F.col("fate") == str(fate))


def _ms_until_final(since: str) -> Column:
    is_committed = F.col("fate") == str(Fate.COMMITTED)
    span = F.unix_millis("finalAt") - F.unix_millis(F.col(since))
    return F.when(is_committed, span)
