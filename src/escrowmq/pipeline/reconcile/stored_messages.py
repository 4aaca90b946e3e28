"""Where messages come from: the files of stores, EscrowMQ's or RocketMQ's, without a broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import Annotated, Final

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from escrowmq.base.message import Topic
from escrowmq.codec import fastjson
from escrowmq.errors import EscrowMQError, UsageError
from escrowmq.pipeline.reconcile.live_messages import (
    COLUMNS,
    OFFSETS,
    Brokers,
    TableBatch,
    is_of_topics,
    without_topics,
)
from escrowmq.pipeline.reconcile.progress import Offsets, RunProgress, Window, moment
from escrowmq.pipeline.reconcile.records import is_of_transactions
from escrowmq.pipeline.source.segments import plan_parts

_LOG: Final = "log"
_ANY_SIZE: Final = 1 << 30
_QUEUE: Final = "0"
_Int = Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]
_Long = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class FileMessages:
    """Store folders under the names of their brokers. All records are read in one scan. `options`
    are the source's about files (`splitBytes`, `checkCrc`, `failOnDataLoss`)."""

    def __init__(
        self,
        spark: SparkSession,
        folders: Mapping[str, str],
        *,
        options: Mapping[str, str] | None = None,
        skipped: Iterable[str] = (),
    ) -> None:
        if not folders:
            raise UsageError("no store folder is given; give one for each broker")
        for folder in folders.values():
            if "://" not in folder:
                plan_parts(folder, _ANY_SIZE)  # raises at once when that is no store
        self._spark = spark
        self._folders = dict(folders)
        self._options = dict(options or {})
        self.skipped = frozenset(skipped)
        self.skipped_brokers: frozenset[str] = frozenset()

    def inner(self, window: Window) -> TableBatch:
        """Everything about transactions."""
        frames = [self._read(name, folder, window) for name, folder in self._folders.items()]
        frame = reduce(DataFrame.unionByName, frames)
        return TableBatch(without_topics(frame, self.skipped), {}, {})

    def topics(self, brokers: Brokers, has_late: bool, window: Window) -> TableBatch | None:
        """Nothing: `inner` has had it all."""
        return None

    def unread(
        self, carried: DataFrame, batches: Iterable[TableBatch], window: Window
    ) -> DataFrame:
        """What earlier runs have kept, without what is read again."""
        is_again = F.coalesce(self._is_again(window), F.lit(False))
        return carried.where(~is_again | is_of_topics(self.skipped))

    def ends(self, batches: Iterable[TableBatch], new: DataFrame, window: Window) -> Offsets:
        """Where the next run goes on: at the first half that was too young, or behind it all."""
        until = moment(window.until_ms)
        is_young = (F.col("topic") == Topic.HALF) & (F.col("storeTimestamp") >= F.lit(until))
        rows = new.groupBy("brokerName").agg(
            F.min(F.when(is_young, F.col("physicalOffset"))).alias("young"),
            (F.max("physicalOffset") + 1).alias("behind"),
        )
        found = dict(window.before.ends.get(_LOG, {}))
        for row in rows.collect():
            end = row["behind"] if row["young"] is None else row["young"]
            found[row["brokerName"]] = {_QUEUE: end}
        return {_LOG: found}

    def group_offsets(self, groups: Iterable[str]) -> DataFrame:
        """How far consumer groups were when their broker saved it."""
        wanted = set(groups)
        rows = [
            (group, name, topic, queue_id, committed)
            for name, folder in self._folders.items()
            for place, queues in _saved_offsets(folder).items()
            for topic, _, group in (place.partition("@"),)
            if group in wanted
            for queue_id, committed in queues.items()
        ]
        return self._spark.createDataFrame(rows, OFFSETS)

    def parked(self) -> DataFrame | None:
        """Nobody knows: files do not tell who is connected."""
        return None

    # -- inside ------------------------------------------------------------------------------

    def _read(self, name: str, folder: str, window: Window) -> DataFrame:
        reader = self._spark.read.format("escrowmq").schema(COLUMNS + ", body binary")
        frame = (
            reader.options(**self._options)
            .option("storePath", folder)
            .option("includeSystemTopics", "true")
            .load()
            .withColumn("brokerName", F.lit(name))
            .where(is_of_transactions())
        )
        is_op = F.col("topic") == Topic.OP
        # An op record that was written while the files are read may tell of a final message in a
        # part that was read before.
        is_late = is_op & (F.col("storeTimestamp") >= F.lit(moment(window.now_ms)))
        frame = frame.where(~is_late & self._is_again(window))
        return frame.withColumn("body", F.when(is_op, F.col("body")))

    def _is_again(self, window: Window) -> Column:
        """Whether a row is in what this run reads."""
        before: RunProgress = window.before
        is_new = F.lit(False)
        for name in self._folders:
            end = before.ends.get(_LOG, {}).get(name, {}).get(_QUEUE, 0)
            is_here = F.col("brokerName") == name
            is_new |= is_here & (F.col("physicalOffset") >= F.lit(end))
        is_again = F.col("storeTimestamp") >= F.lit(moment(window.again_ms))
        if before.run:
            return is_new | is_again
        return is_again if window.since_ms else F.lit(True)


class _Saved(msgspec.Struct, rename="camel"):
    """What is wanted of `consumerOffset.json`: offsets by `topic@group` and queue."""

    offset_table: dict[str, dict[_Int, _Long]]


def _saved_offsets(folder: str) -> dict[str, dict[int, int]]:
    path = Path(folder) / "config" / "consumerOffset.json"
    try:
        found = fastjson.decode(path.read_bytes())
        return msgspec.convert(found, _Saved, str_keys=True).offset_table
    except (OSError, EscrowMQError, msgspec.ValidationError) as error:
        raise UsageError(
            f"{path} does not tell how far consumer groups are: {error}; leave the groups out, or "
            "ask the live cluster"
        ) from error
