"""The difference that compensation is about, as a Spark job: commits that were announced and not
consumed, for sets that one Redis server does not hold. It agrees with `RedisSets.compare`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_MARK: Final = "@"
"""Between the id and the topic of a member (docs/compensation.md)."""

_CHUNK: Final = 1_000


def announced(messages: DataFrame) -> DataFrame:
    """`member` and `announcedAt` of each commit that messages of the topic of announcements tell;
    what names no message is left out, as the reader of announcements does."""
    text = F.col("body").cast("string")
    is_member = F.coalesce(text.rlike(f"^[^{_MARK}]+{_MARK}(?s:.+)$"), F.lit(False))
    return messages.where(is_member).select(
        text.alias("member"), F.col("storeTimestamp").alias("announcedAt")
    )


def consumed(rows: DataFrame) -> DataFrame:
    """`member` of each message that the business has done: `rows` have `messageId` and `topic`."""
    return rows.select(F.concat_ws(_MARK, "messageId", "topic").alias("member"))


def lost_commits(announced: DataFrame, consumed: DataFrame) -> DataFrame:
    """The members that were announced and not consumed, each once, with `messageId`, `topic` and
    when it was announced first."""
    first = announced.groupBy("member").agg(F.min("announcedAt").alias("announcedAt"))
    lost = first.join(consumed.select("member").hint("shuffle_hash"), "member", "left_anti")
    return lost.select(
        "member",
        F.substring_index("member", _MARK, 1).alias("messageId"),
        F.expr(f"substring(member, locate('{_MARK}', member) + 1)").alias("topic"),
        "announcedAt",
    )


class ComputedSets:
    """Lost commits in the place of the sets of `compensation.Compensator`, which looks up each of
    them and has the business do it.

    >>> lost = lost_commits(announced(messages), consumed(rows))
    >>> Compensator(admin, ComputedSets(lost), shop).run(is_dry=False).counts["redone"]
    2

    What is redone needs no note here: the business's own table says so, next time.
    """

    def __init__(self, lost: DataFrame) -> None:
        self._lost = lost

    def announce(self, members: Iterable[str]) -> None:
        """Nothing: announcements stand in their topic."""

    def consume(self, members: Iterable[str]) -> None:
        """Nothing: the business has it in its table."""

    def compare(self) -> Iterator[list[str]]:
        """What is announced only, some at a time."""
        some: list[str] = []
        for row in self._lost.select("member").toLocalIterator():
            some.append(row["member"])
            if len(some) == _CHUNK:
                yield some
                some = []
        if some:
            yield some
