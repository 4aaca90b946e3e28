"""Finds lost commits, announced and not consumed, with a Spark job, for sets that are too large for
one Redis server. The result equals that of `RedisSets.compare`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from escrowmq.client.announced_commits import MARK, Compared

_CHUNK: Final = 1_000


def announced(messages: DataFrame) -> DataFrame:
    """Return the commits that the messages of the topic of announcements name: `member`, which is
    `<message id>@<topic>`, and `announcedAt`. Bodies of another form are left out."""
    text = F.col("body").cast("string")
    is_member = F.coalesce(text.rlike(f"^[^{MARK}]+{MARK}(?s:.+)$"), F.lit(False))
    return messages.where(is_member).select(
        text.alias("member"), F.col("storeTimestamp").alias("announcedAt")
    )


def consumed(rows: DataFrame) -> DataFrame:
    """Return a `member`, `<message id>@<topic>`, for each message that the business has
    processed. `rows` have `messageId` and `topic`; if the topic is null, the id matches messages of
    all topics."""
    member = F.when(F.col("topic").isNotNull(), F.concat_ws(MARK, "messageId", "topic"))
    return rows.select(member.alias("member"), "messageId")


def lost_commits(announced: DataFrame, consumed: DataFrame) -> DataFrame:
    """Return the members that were announced and not consumed, without duplicates, with
    `messageId`, `topic` and the time of the first announcement."""
    first = announced.groupBy("member").agg(F.min("announcedAt").alias("announcedAt"))
    whole = consumed.where(F.col("member").isNotNull()).select("member")
    lost = first.join(whole.hint("shuffle_hash"), "member", "left_anti").select(
        "member",
        F.substring_index("member", MARK, 1).alias("messageId"),
        F.expr(f"substring(member, locate('{MARK}', member) + 1)").alias("topic"),
        "announcedAt",
    )
    by_id = consumed.where(F.col("member").isNull()).select("messageId")
    return lost.join(by_id.hint("shuffle_hash"), "messageId", "left_anti").select(*lost.columns)


class ComputedSets:
    """Tables instead of sets, for `compensation.Compensator`, which looks up each lost commit and
    has the business process it, and for `CommitReconciler`.

    >>> sets = ComputedSets(announced(messages), consumed(rows))
    >>> Compensator(admin, sets, shop).run(is_dry=False).counts["redone"]
    2

    Redone commits need no record here: the business's own table has them next time."""

    def __init__(self, announced: DataFrame, consumed: DataFrame) -> None:
        self._announced = announced
        self._consumed = consumed

    def also(self, announced: DataFrame) -> ComputedSets:
        """Return these sets with more announcements; duplicates are harmless."""
        return ComputedSets(self._announced.unionByName(announced), self._consumed)

    def announce(self, members: Iterable[str]) -> None:
        """Do nothing: announcements are in their topic."""

    def consume(self, members: Iterable[str]) -> None:
        """Do nothing: consumed messages are in the business's table."""

    def compare(self) -> Iterator[Compared]:
        """Yield the members that are announced but not consumed, in batches, and at the end the
        number of the others."""
        announced = self._announced.persist()
        try:
            lost_count = 0
            lost = lost_commits(announced, self._consumed).select("member")
            some: list[str] = []
            for row in lost.toLocalIterator():
                some.append(row["member"])
                if len(some) == _CHUNK:
                    yield Compared(some, 0)
                    lost_count += len(some)
                    some = []
            total = announced.select("member").distinct().count()
            yield Compared(some, total - lost_count - len(some))
        finally:
            announced.unpersist()
