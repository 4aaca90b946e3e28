"""Reads messages from store files, EscrowMQ's or RocketMQ's, without a broker."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import Annotated, Final

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from escrowmq.base.message import Topic
from escrowmq.codec import fastjson
from escrowmq.errors import DataLost, EscrowMQError, UsageError
from escrowmq.pipeline.brokers.options import UserOptions
from escrowmq.pipeline.reconcile.live_messages import (
    COLUMNS,
    OFFSETS,
    BrokersByTopic,
    TableBatch,
    body_digest,
    is_of_topics,
    refuse_selecting_options,
    without_topics,
)
from escrowmq.pipeline.reconcile.progress import Offsets, RunProgress, RunWindow, to_spark_time
from escrowmq.pipeline.reconcile.records import is_of_transactions
from escrowmq.pipeline.source.segments import plan_parts

_log = logging.getLogger(__name__)

_LOG: Final = "log"
_ANY_SIZE: Final = 1 << 30
_QUEUE: Final = "0"
_Int = Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]
_Long = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class FileMessages:
    """Messages in store folders, given by the names of their brokers. All records are read in one
    scan. `options` are the source's about files (`splitBytes`, `checkCrc`, `failOnDataLoss`). Each
    broker that earlier runs have read must be among them or in `skipped_brokers`."""

    def __init__(
        self,
        spark: SparkSession,
        folders: Mapping[str, str],
        *,
        options: Mapping[str, str] | None = None,
        skipped: Iterable[str] = (),
        skipped_brokers: Iterable[str] = (),
        compares_bodies: bool = False,
    ) -> None:
        if not folders:
            raise UsageError("no store folder is given; give one for each broker")
        for name in sorted(set(folders) & set(skipped_brokers)):
            raise UsageError(
                f"broker {name!r} is left out, and its store {folders[name]} is given: leave out "
                "the store (--store), or read the broker (--skip-broker)"
            )
        for folder in folders.values():
            if "://" not in folder:
                plan_parts(folder, _ANY_SIZE)  # raises at once when that is no store
        self._spark = spark
        self._compares_bodies = compares_bodies
        self._folders = dict(folders)
        self._options = dict(options or {})
        refuse_selecting_options(self._options)
        self._fails_on_loss = UserOptions(self._options).flag("failOnDataLoss", default=True)
        self._firsts: dict[str, int] = {}
        self._tails: dict[str, int] = {}
        """The starts of the first and the last segment of each log; all segments from one to the
        other are read."""
        self.skipped = frozenset(skipped)
        self.skipped_brokers = frozenset(skipped_brokers)

    def read_transactions(self, window: RunWindow) -> TableBatch:
        """Read all records of transactions. Raises DataLost if segments were deleted unread, and
        UsageError for a missing store."""
        self._require_all(window)
        for name, folder in self._folders.items():
            if "://" not in folder:
                self._require_unbroken(name, folder, window)
        frames = [self._read_store(name, folder, window) for name, folder in self._folders.items()]
        frame = reduce(DataFrame.unionByName, frames)
        return TableBatch(without_topics(frame, self.skipped), {}, {})

    def read_topics(
        self, brokers: BrokersByTopic, has_late: bool, window: RunWindow
    ) -> TableBatch | None:
        """Return None: `read_transactions` has read everything."""
        return None

    def carried_not_reread(
        self, carried: DataFrame, batches: Iterable[TableBatch], window: RunWindow
    ) -> DataFrame:
        """Return the messages that earlier runs have stored, without those that this run reads
        again."""
        is_again = F.coalesce(self._is_reread(window), F.lit(False))
        is_gone = F.lit(False)  # with its segment
        for name, first in self._firsts.items():
            is_gone |= (F.col("brokerName") == name) & (F.col("physicalOffset") < F.lit(first))
        is_elsewhere = ~F.col("brokerName").isin(sorted(self._folders))
        return carried.where(~is_again | is_gone | is_elsewhere | is_of_topics(self.skipped))

    def next_offsets(
        self, batches: Iterable[TableBatch], new: DataFrame, window: RunWindow
    ) -> Offsets:
        """Return the offsets where the next run continues: at the first half that was too young, or
        at the end."""
        until = to_spark_time(window.until_ms)
        is_young = (F.col("topic") == Topic.HALF) & (F.col("storeTimestamp") >= F.lit(until))
        rows = new.groupBy("brokerName").agg(
            F.min(F.when(is_young, F.col("physicalOffset"))).alias("young"),
            (F.max("physicalOffset") + 1).alias("behind"),
        )
        # A log may have no transaction for many segments; these were nevertheless read.
        ends = {
            name: max(_last_read_offset(window, name), tail) for name, tail in self._tails.items()
        }
        for row in rows.collect():
            name = row["brokerName"]
            young, behind = row["young"], row["behind"]
            ends[name] = max(behind, ends.get(name, 0)) if young is None else young
        found = {name: {_QUEUE: end} for name, end in ends.items()}
        return {_LOG: window.before.ends.get(_LOG, {}) | found}

    def group_offsets(self, groups: Iterable[str]) -> DataFrame:
        """Return the offsets of consumer groups, as last saved by their broker."""
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

    def parked_halves(self) -> DataFrame | None:
        """Return None: files do not show which producers are connected."""
        return None

    def topic_begin_times(self) -> DataFrame | None:
        """Return None: the log also has the messages of deleted topics."""
        return None

    # -- inside ------------------------------------------------------------------------------

    def _require_all(self, window: RunWindow) -> None:
        """Raise UsageError if a store that an earlier run read is not given: its transactions would
        be counted as missing."""
        before = window.before.ends.get(_LOG, {})
        for name in sorted(before.keys() - self._folders.keys() - self.skipped_brokers):
            read_offset = _last_read_offset(window, name)
            raise UsageError(
                f"the last run has read the store of broker {name!r} up to {read_offset}, "
                "and it is not given now: give it (--store), or leave the broker out "
                "(--skip-broker)"
            )

    def _require_unbroken(self, name: str, folder: str, window: RunWindow) -> None:
        """Raise DataLost if messages were deleted before they were read: they would be counted as
        missing."""
        parts = plan_parts(folder, _ANY_SIZE)
        if not parts:
            return  # one file, and nothing in it
        first, end = parts[0].first_log_offset, _last_read_offset(window, name)
        self._firsts[name], self._tails[name] = first, parts[-1].first_log_offset
        if first <= end or not end:
            return
        text = (
            f"the log of {folder} begins at {first}, and the last run has read it up to {end}: "
            "what lies between was removed before it was read (retention), or this is another log"
        )
        if self._fails_on_loss:
            raise DataLost(
                f"{text}. Run more often than segments are removed; set failOnDataLoss=false "
                "(--option) to continue without them"
            )
        _log.warning("%s; failOnDataLoss=false, so the run continues without it", text)

    def _read_store(self, name: str, folder: str, window: RunWindow) -> DataFrame:
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
        # An op record that is written while the files are read may name a final message in a part
        # that was read before.
        is_late = is_op & (F.col("storeTimestamp") >= F.lit(to_spark_time(window.now_ms)))
        frame = frame.where(~is_late & self._is_reread(window))
        own = F.when(is_op, F.col("body"))
        return frame.withColumn(
            "body", own.otherwise(body_digest()) if self._compares_bodies else own
        )

    def _is_reread(self, window: RunWindow) -> Column:
        """Whether this run reads a row that earlier runs have read."""
        before: RunProgress = window.before
        is_new = F.lit(False)
        for name in self._folders:
            end = _last_read_offset(window, name)
            is_here = F.col("brokerName") == name
            is_new |= is_here & (F.col("physicalOffset") >= F.lit(end))
        is_again = F.col("storeTimestamp") >= F.lit(to_spark_time(window.reread_from_ms))
        if before.run:
            return is_new | is_again
        return is_again if window.since_ms else F.lit(True)


def _last_read_offset(window: RunWindow, name: str) -> int:
    """Return the log offset up to which runs have read; 0 for none."""
    return window.before.ends.get(_LOG, {}).get(name, {}).get(_QUEUE, 0)


class _SavedOffsets(msgspec.Struct, rename="camel"):
    """The part of `consumerOffset.json` that is needed: offsets by `topic@group` and queue."""

    offset_table: dict[str, dict[_Int, _Long]]


def _saved_offsets(folder: str) -> dict[str, dict[int, int]]:
    path = Path(folder) / "config" / "consumerOffset.json"
    try:
        found = fastjson.decode_fastjson(path.read_bytes())
        return msgspec.convert(found, _SavedOffsets, str_keys=True).offset_table
    except (OSError, EscrowMQError, msgspec.ValidationError) as error:
        raise UsageError(
            f"{path} cannot be read for the offsets of consumer groups: {error}; leave the "
            "groups out, or ask the live cluster"
        ) from error
