"""Collects the messages of a run: new ones since the last run, and older ones whose transactions
were still open. They are copied first, so that everything is computed from the same rows, however
long it takes and whatever the brokers do meanwhile."""

from __future__ import annotations

import datetime as dt
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from escrowmq.base.message import Topic
from escrowmq.pipeline.reconcile import records
from escrowmq.pipeline.reconcile.live_messages import COLUMNS, TransactionSource
from escrowmq.pipeline.reconcile.progress import Offsets, RunWindow, to_spark_time

SCHEMA: Final = COLUMNS + ", body binary"
_SLOTS: Final = 2
"""Number of kept copies: those of a run and of the run before; the next run overwrites the older
ones."""


class RunInput(msgspec.Struct, frozen=True):
    """The messages of a run."""

    messages: DataFrame
    """All messages, new ones and older ones."""

    new: DataFrame
    """Messages that this run has read, without earlier ones."""

    read: DataFrame
    """The same with the halves that are left to the next run. If the broker's clock was set back,
    they may be ended already."""

    ends: Offsets
    """The offsets where the next run begins."""


class Gatherer:
    """Reads messages for runs, and stores them in a result folder."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self._root = root

    def gather(self, source: TransactionSource, window: RunWindow) -> RunInput:
        """Read the messages that a run needs. The window's run number decides where they are
        stored."""
        run = window.before.run + 1
        carried = self._read(run - 1, "carried") if run > 1 else None
        inner = source.read_transactions(window)
        self._write(inner.frame, run, "inner")
        batches, new = [inner], self._read(run, "inner")
        known = new if carried is None else new.unionByName(carried)
        late = source.read_topics(*_half_topics(known), window)
        if late is not None:
            self._write(late.frame, run, "topics")
            batches.append(late)
            new = new.unionByName(self._read(run, "topics"))
        ends = source.next_offsets(batches, new, window)
        read, new = new, _in_window(new, window)
        if carried is None:
            return RunInput(new, new, read, ends)
        return RunInput(
            new.unionByName(source.carried_not_reread(carried, batches, window)), new, read, ends
        )

    def store_for_next_run(
        self, gathered: RunInput, open_ids: DataFrame, *, window: RunWindow
    ) -> None:
        """Store the records of some messages (`broker`, `messageId`), so that the next run examines
        them again; and those of messages of whose halves it reads only newer copies: an op record
        may name an older one."""
        again = to_spark_time(max(0, window.until_ms - window.lookback_ms))
        copies = records.halves(gathered.messages).where(
            F.col("isRenewal") & (F.col("storedAt") >= F.lit(again))
        )
        key = ("broker", "messageId")
        ids = F.broadcast(open_ids.select(*key).union(copies.select(*key)).distinct())
        rows = gathered.messages.withColumn("broker", F.coalesce("brokerName", F.lit("")))
        is_op = F.col("topic") == Topic.OP
        own = rows.where(~is_op).join(
            ids.withColumnRenamed("messageId", "msgId"), ["broker", "msgId"], "left_semi"
        )
        halves = records.halves(gathered.messages).join(ids, ["broker", "messageId"], "left_semi")
        naming = records.op_record_halves(gathered.messages).join(
            F.broadcast(halves.select("broker", "halfOffset")), ["broker", "halfOffset"]
        )
        places = naming.select("broker", "queueOffset").distinct()
        ops = rows.where(is_op).join(F.broadcast(places), ["broker", "queueOffset"], "left_semi")
        kept = own.unionByName(ops.select(*own.columns)).select(*gathered.messages.columns)
        self._write(kept, window.before.run + 1, "carried")

    def _path(self, run: int, part: str) -> str:
        return f"{self._root}/state/{run % _SLOTS}/{part}"

    def _write(self, frame: DataFrame, run: int, part: str) -> None:
        names = [field.split()[0] for field in SCHEMA.split(", ")]
        frame.select(*names).write.mode("overwrite").parquet(self._path(run, part))

    def _read(self, run: int, part: str) -> DataFrame:
        return self._spark.read.schema(SCHEMA).parquet(self._path(run, part))


def _half_topics(messages: DataFrame) -> tuple[dict[str, frozenset[str]], bool]:
    """Return the topics of halves, with the brokers that have halves for each, and whether any half
    is delayed."""
    found = records.halves(messages).where("topic is not null").groupBy("topic")
    rows = found.agg(
        F.collect_set("broker").alias("brokers"), F.bool_or("isDelayed").alias("isDelayed")
    ).collect()
    brokers = {row["topic"]: frozenset(row["brokers"]) for row in rows}
    return brokers, any(row["isDelayed"] for row in rows)


def _in_window(frame: DataFrame, window: RunWindow) -> DataFrame:
    until = dt.datetime.fromtimestamp(window.until_ms / 1000, dt.UTC)
    is_young = (F.col("topic") == Topic.HALF) & (F.col("storeTimestamp") >= F.lit(until))
    return frame.where(~is_young)
