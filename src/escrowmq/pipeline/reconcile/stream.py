"""The reconciliation as a stream: reports halves whose end is overdue while they are open.

Halves are joined with the op records that name them. Halves without a match leave the join when the
watermark passes, and go to Python, where they are reported. With `look`, timers check them again,
report them again, and give up in the end; without it they are reported once, because nothing says
whether they have ended since. Give `look` for RocketMQ's brokers, which store a half again for each
check: no op record names the older copies, and only `look` knows that the last one was ended.
Most halves never reach Python: the join takes 30 to 120 us of CPU for each, state in Python 400 to
800.

Time is the watermark: the latest record's time minus the skew. Records of either topic move it for
both, so it advances even if no transaction ends; `clock` moves it if nothing is stored at all. Ends
that are read later than the skew allows count as missing, so start a query at a recent time, and
leave older halves to the batch. Times that this machine has not reached count as its own time."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from escrowmq.base.message import Topic
from escrowmq.pipeline.reconcile import records
from escrowmq.pipeline.reconcile.differences import DifferenceClass, Repair

TOPICS: Final = f"{Topic.HALF},{Topic.OP}"
"""The topics of the stream of messages (with `includeSystemTopics`)."""

STATE_STORE: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
"""The required value of `spark.sql.streaming.stateStore.providerClass`: timers need it."""

OPEN: Final = (
    "class string, broker string, topic string, messageId string, at timestamp, "
    "evidence map<string,string>, repair string"
)
_STATE: Final = "topic string, producerGroup string, sinceMs bigint, told int"

Look = Callable[[str, str, str], bool]
"""Whether a transaction is still open: called with broker, topic and message id, by executors."""


class StreamTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """The timeouts of the stream, in seconds."""

    skew_s: int = 60
    """How many seconds the reading of one topic may lag behind that of the other."""

    overdue_s: int = 600
    """A half that is open for longer is reported."""

    again_s: int = 3_600
    """After this many seconds a half is checked again, and reported again if it is still open (with
    `look`)."""

    times_max: int = 72
    """Limit of the reports about one half; later ones are left to the batch reconciliation. Without
    `look` it is 1."""


def clock(spark: SparkSession, *, behind_s: int = 600) -> DataFrame:
    """A stream of times that advances even if nothing is stored: the machine's time, minus the lag
    that readers may have."""
    rows = spark.readStream.format("rate").option("rowsPerSecond", 1).load()
    return rows.select((F.col("timestamp") - F.expr(f"interval {behind_s} seconds")).alias("at"))


def overdue(
    messages: DataFrame,
    *,
    patience: StreamTimeouts | None = None,
    beats: DataFrame | None = None,
    look: Look | None = None,
) -> DataFrame:
    """Return a stream of differences (`OPEN`): halves in a stream of `TOPICS` that are not ended in
    time. `beats` is `clock`, or None. `look` tells whether a half is still open, so that it is
    reported repeatedly; without it each is reported once."""
    chosen = patience or StreamTimeouts()
    # One broker whose clock is ahead would make the halves of all others overdue at once.
    at = F.least("storeTimestamp", _machine_time())
    alone = _unended_halves(messages.withColumn("storeTimestamp", at), chosen, beats)
    return alone.groupBy("broker", "messageId").transformWithState(
        statefulProcessor=OverdueWatch(chosen, look),
        outputStructType=OPEN,
        outputMode="append",
        timeMode="EventTime",
    )


def _machine_time() -> Column:
    """The time of this machine at the beginning of a batch."""
    return F.current_timestamp()


def _unended_halves(
    messages: DataFrame, patience: StreamTimeouts, beats: DataFrame | None
) -> DataFrame:
    skew = f"{patience.skew_s} seconds"
    halves = _with_clock_rows(_halves(messages), messages, Topic.OP, beats).withWatermark(
        "at", skew
    )
    ends = _with_clock_rows(_ends(messages), messages, Topic.HALF, beats).withWatermark("at", skew)
    ends = ends.select(
        F.col("broker").alias("endBroker"), F.col("place").alias("endPlace"),
        F.col("at").alias("endAt"),
    )  # fmt: skip
    joined = halves.join(
        ends,
        F.expr(
            "broker = endBroker and place = endPlace and "
            f"endAt >= at - interval {skew} and endAt <= at + interval {patience.overdue_s} seconds"
        ),
        "leftOuter",
    )
    is_alone = F.col("endPlace").isNull() & (F.col("messageId") != "")
    return joined.where(is_alone).select(
        "broker", "messageId", "topic", "producerGroup", "at", "immunityS"
    )


def _halves(messages: DataFrame) -> DataFrame:
    return records.halves(messages).select(
        "broker", F.col("halfOffset").alias("place"), "messageId", "topic", "producerGroup",
        F.col("storedAt").alias("at"), "immunityS",
    )  # fmt: skip


def _ends(messages: DataFrame) -> DataFrame:
    return records.ops(messages).select(
        "broker", F.col("halfOffset").alias("place"), F.lit("").alias("messageId"),
        F.lit("").alias("topic"), F.lit("").alias("producerGroup"), F.col("endedAt").alias("at"),
        F.lit(0).cast("long").alias("immunityS"),
    )  # fmt: skip


def _with_clock_rows(
    side: DataFrame, messages: DataFrame, other: str, beats: DataFrame | None
) -> DataFrame:
    """Return one side of the join, with an additional row for each record of the other topic. Such
    a row carries only the record's time. It matches nothing, because its offset is below zero: odd
    on one side, even on the other."""
    odd = 1 if other == Topic.OP else 2
    reports = messages.where(F.col("topic") == other).select(
        F.coalesce("brokerName", F.lit("")).alias("broker"),
        (-2 * F.col("queueOffset") - odd).alias("place"),
        F.col("storeTimestamp").alias("at"),
    )
    if beats is not None:
        place = -2 * F.unix_seconds("at") - odd
        reports = reports.unionByName(
            beats.select(F.lit("").alias("broker"), place.alias("place"), "at")
        )
    blank = [F.lit("").alias(name) for name in ("messageId", "topic", "producerGroup")]
    return side.unionByName(
        reports.select("broker", "place", *blank, "at", F.lit(0).cast("long").alias("immunityS"))
    )


class OverdueWatch(StatefulProcessor):
    """Reports overdue halves; with `look` until they are ended, or were reported often enough."""

    def __init__(self, patience: StreamTimeouts, look: Look | None) -> None:
        self._patience = patience
        self._look = look

    def init(self, handle: Any) -> None:  # noqa: ANN401 - Spark's
        """Set up the state, when Spark calls it."""
        self._handle = handle
        self._state = handle.getValueState("state", _STATE)

    def handleInputRows(  # noqa: N802 - Spark's names
        self,
        key: Any,  # noqa: ANN401
        rows: Iterator[Row],
        timerValues: Any,  # noqa: ANN401, N803
    ) -> Iterator[Row]:
        """Report the halves that have become overdue."""
        for row in rows:
            if self._state.exists():
                continue
            since_ms = int(row["at"].timestamp() * 1000)
            found = (row["topic"], row["producerGroup"], since_ms, 0)
            own_ms = since_ms + row["immunityS"] * 1000
            if timerValues.getCurrentWatermarkInMs() < own_ms:
                # Without `look` nobody knows then whether it has ended: the batch reports it.
                if self._look is not None:
                    self._state.update(found)
                    self._handle.registerTimer(own_ms)
                continue
            yield from self._report_overdue(key, found, timerValues.getCurrentWatermarkInMs())

    def handleExpiredTimer(  # noqa: N802 - Spark's names
        self,
        key: Any,  # noqa: ANN401
        timerValues: Any,  # noqa: ANN401, N803
        expiredTimerInfo: Any,  # noqa: ANN401, N803
    ) -> Iterator[Row]:
        """Check a half again, and report it if it is still open."""
        if self._state.exists():
            found = tuple(self._state.get())
            yield from self._report_overdue(key, found, timerValues.getCurrentWatermarkInMs())

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _report_overdue(self, key: Any, found: tuple[Any, ...], now_ms: int) -> Iterator[Row]:  # noqa: ANN401
        topic, group, since_ms, reports = found
        broker, message_id = key
        if self._look is not None and not self._look(broker, topic, message_id):
            self._state.clear()
            return
        reports += 1
        if self._look is not None and reports < self._patience.times_max:
            self._state.update((topic, group, since_ms, reports))
            self._handle.registerTimer(now_ms + self._patience.again_s * 1000)
        else:
            self._state.clear()
        evidence = {
            "producerGroup": group or "",
            "ageSeconds": str((now_ms - since_ms) // 1000),
            "told": str(reports),
        }
        at = dt.datetime.fromtimestamp(since_ms / 1000, dt.UTC)
        cells = {
            "class": str(DifferenceClass.OVERDUE), "broker": broker, "topic": topic,
            "messageId": message_id, "at": at, "evidence": evidence, "repair": str(Repair.ASK),
        }  # fmt: skip
        yield Row(**cells)
