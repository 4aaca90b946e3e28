"""Reads messages from a live cluster.

The order of reading matters: a broker stores the half, then the final message, then the op record.
So the ends of the halves are determined first, those of the op records next, those of the topics
last. Then every half and final message that an op record names has been read."""

from __future__ import annotations

import datetime as dt
import json
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from escrowmq.base.message import Topic
from escrowmq.client.broker_clocks import BrokerClocks
from escrowmq.client.core.routes import MessageQueue
from escrowmq.errors import DataLost, NotSupported, RouteMissing, UsageError
from escrowmq.net.clock import SystemClock
from escrowmq.pipeline.brokers.cluster import Cluster
from escrowmq.pipeline.brokers.options import UserOptions, parse_access
from escrowmq.pipeline.brokers.ranges import Positions
from escrowmq.pipeline.reconcile import broker_clocks
from escrowmq.pipeline.reconcile.progress import (
    Offsets,
    RunProgress,
    RunWindow,
    merge_offsets,
    to_offsets,
    to_spark_time,
    topics_of,
)
from escrowmq.pipeline.reconcile.records import is_final
from escrowmq.pipeline.source.options import SELECTING_OPTIONS
from escrowmq.pipeline.source.pruning import CLOCK_SLACK_MS

if TYPE_CHECKING:
    from escrowmq.client.blocking.admin import Admin

_log = logging.getLogger(__name__)

COLUMNS: Final = (
    "topic string, brokerName string, queueId int, queueOffset bigint, msgId string, tags string, "
    "properties map<string,string>, bornTimestamp timestamp, storeTimestamp timestamp, "
    "sysFlag int, physicalOffset bigint, preparedTransactionOffset bigint"
)
"""The columns needed of each message. Bodies are read only of op records."""

BEGIN_TIMES: Final = "broker string, topic string, beganAt timestamp"
OFFSETS: Final = "consumerGroup string, broker string, topic string, queueId int, committed bigint"
PARKED: Final = "broker string, halfOffset bigint"
BrokersByTopic = Mapping[str, frozenset[str]]
"""Topics, each with the brokers that have halves for it."""

_INNER: Final = (Topic.HALF, Topic.OP, Topic.CHECK_MAX_TIME)
_LATE: Final = (Topic.SCHEDULE, Topic.TIMER)


class TableBatch(msgspec.Struct, frozen=True):
    """The messages of one read, and the offsets where the next one continues."""

    frame: DataFrame
    ends: Offsets
    begins: Offsets


class TransactionSource(Protocol):
    """A source of the records of transactions: a live cluster, or store files."""

    @property
    def skipped(self) -> frozenset[str]:
        """Topics that are left out, together with their halves."""

    @property
    def skipped_brokers(self) -> frozenset[str]:
        """Brokers that are left out, with all their messages."""

    def read_transactions(self, window: RunWindow) -> TableBatch:
        """Read halves, op records and discarded halves."""

    def read_topics(
        self, brokers: BrokersByTopic, has_late: bool, window: RunWindow
    ) -> TableBatch | None:
        """Read committed messages in topics (each with the brokers that have halves for it), and,
        with `has_late`, delayed ones that are not due yet. Return None if `read_transactions` had
        them all."""

    def carried_not_reread(
        self, carried: DataFrame, batches: Iterable[TableBatch], window: RunWindow
    ) -> DataFrame:
        """Return the messages that earlier runs have stored, without those that these batches have
        read again."""

    def next_offsets(
        self, batches: Iterable[TableBatch], new: DataFrame, window: RunWindow
    ) -> Offsets:
        """Return the offsets where the next run continues."""

    def group_offsets(self, groups: Iterable[str]) -> DataFrame:
        """Return the offsets of consumer groups: `OFFSETS`."""

    def parked_halves(self) -> DataFrame | None:
        """Return the parked halves (`PARKED`); None if unknown."""

    def topic_begin_times(self) -> DataFrame | None:
        """Return the store time of the first message of each topic read (`BEGIN_TIMES`), as far as
        known; null for an empty topic. None if the source also reads messages of deleted topics."""


class BrokerMessages:
    """Messages in the topics of a live cluster, with brokers of EscrowMQ, of RocketMQ, or of both.
    `options` are the source's about addresses, accounts and pulling. Topics in `skipped` are left
    out, with their halves; so are the brokers in `skipped_brokers`."""

    def __init__(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        *,
        admin: Admin,
        skipped: Iterable[str] = (),
        skipped_brokers: Iterable[str] = (),
        compares_bodies: bool = False,
    ) -> None:
        self._spark = spark
        self._compares_bodies = compares_bodies
        self._options = dict(options)
        refuse_selecting_options(self._options)
        self._admin = admin
        self.skipped = frozenset(skipped)
        self.skipped_brokers = frozenset(skipped_brokers)
        self._brokers: frozenset[str] = frozenset()
        """Brokers from which halves were read."""
        self._ahead_ms: dict[str, int] = {}
        """Milliseconds by which some brokers' clocks are ahead."""
        self._begin_times: list[tuple[str, str, dt.datetime | None]] = []

    def read_transactions(self, window: RunWindow) -> TableBatch:
        """Read halves, op records and discarded halves."""
        cluster = self._cluster()
        try:
            known = set(cluster.topics(".*", lambda _: True))
            if Topic.HALF not in known:
                raise RouteMissing(
                    f"no broker has a topic {Topic.HALF}: nothing was ever sent in a transaction "
                    "here. Is it the right cluster?"
                )
            halves = self._queues(cluster, Topic.HALF, window)
            self._brokers = frozenset(queue.broker_name for queue in halves)
            clocks = BrokerClocks(self._admin.brokers.runtime, SystemClock().now_ms)
            ahead_ms = {name: clocks.ahead_ms(name) for name in sorted(self._brokers)}
            self._ahead_ms = {name: span_ms for name, span_ms in ahead_ms.items() if span_ms}
            half_ends = self._half_ends(cluster, halves, window)
            others = [q for t in _INNER[1:] if t in known for q in self._queues(cluster, t, window)]
            ends = half_ends | cluster.end_offsets(others)
            starts = self._start_offsets(cluster, ends, window)
        finally:
            cluster.close()
        ends = {queue: max(end, starts[queue]) for queue, end in ends.items()}
        ops = _positions_of(starts, topic=Topic.OP)
        rest = {queue: start for queue, start in starts.items() if queue not in ops}
        frame = self._without_skipped(self._read(rest, ends))
        if ops:
            frame = frame.unionByName(self._read(ops, ends, has_body=True))
        return TableBatch(frame, to_offsets(ends), to_offsets(starts))

    def read_topics(
        self, brokers: BrokersByTopic, has_late: bool, window: RunWindow
    ) -> TableBatch | None:
        """Read committed messages in topics. Raises RouteMissing for a missing topic."""
        wanted = {*brokers, *topics_of(window.before.ends, without=(*_INNER, *_LATE))}
        cluster = self._cluster()
        try:
            known = set(cluster.topics(".*", lambda _: True))
            wanted -= self.skipped
            missing = sorted(wanted - known)
            if missing:
                raise RouteMissing(
                    f"the topic {missing[0]!r}, for which there are half messages, is not known to "
                    "the name servers; bring it back, or leave it out (--skip-topic)"
                )
            late = [topic for topic in _LATE if topic in known and has_late]
            queues = [q for t in sorted({*wanted, *late}) for q in self._queues(cluster, t, window)]
            self._require_topics(
                queues, {topic: brokers.get(topic, frozenset()) for topic in wanted}
            )
            if not queues:  # all halves are too young yet
                return None
            starts = self._start_offsets(cluster, queues, window)
            ends = cluster.end_offsets(queues)
            self._begin_times = self._begin_times_of(
                cluster, [q for q in queues if q.topic not in late]
            )
        finally:
            cluster.close()
        ends = {queue: max(end, starts[queue]) for queue, end in ends.items()}
        frame = self._without_skipped(self._read(starts, ends).where(is_final()))
        return TableBatch(frame, to_offsets(ends), to_offsets(starts))

    def carried_not_reread(
        self, carried: DataFrame, batches: Iterable[TableBatch], window: RunWindow
    ) -> DataFrame:
        """Return the messages that earlier runs have stored, without those that these batches have
        read again."""
        rows = [
            (topic, broker, int(queue_id), begin)
            for batch in batches
            for topic, brokers in batch.begins.items()
            for broker, queues in brokers.items()
            for queue_id, begin in queues.items()
        ]
        begins = self._spark.createDataFrame(
            rows, "topic string, brokerName string, queueId int, readFrom bigint"
        )
        joined = carried.join(F.broadcast(begins), ["topic", "brokerName", "queueId"], "left")
        is_unread = F.col("readFrom").isNull() | (F.col("queueOffset") < F.col("readFrom"))
        # Skipped messages were not read again, although their queue was.
        is_unread |= is_of_topics(self.skipped)
        return joined.where(is_unread).select(*carried.columns)

    def next_offsets(
        self, batches: Iterable[TableBatch], new: DataFrame, window: RunWindow
    ) -> Offsets:
        """Return the offsets where the next run continues: at the first half that was too young, or
        at the end. Queues that were not read this time keep their offset."""
        until = F.lit(to_spark_time(window.until_ms))
        young = new.where((F.col("topic") == Topic.HALF) & (F.col("storeTimestamp") >= until))
        rows = (
            young.groupBy("brokerName", "queueId").agg(F.min("queueOffset").alias("at")).collect()
        )
        firsts = to_offsets(
            {MessageQueue(Topic.HALF, row["brokerName"], row["queueId"]): row["at"] for row in rows}
        )
        return merge_offsets([window.before.ends, *(batch.ends for batch in batches), firsts])

    def group_offsets(self, groups: Iterable[str]) -> DataFrame:
        """Return the committed offsets of consumer groups."""
        rows = [
            (group, lag.queue.broker_name, lag.queue.topic, lag.queue.queue_id, lag.committed)
            for group in groups
            for lag in self._admin.groups.lag(group)
        ]
        return self._spark.createDataFrame(rows, OFFSETS)

    def parked_halves(self) -> DataFrame | None:
        """Return the parked halves on EscrowMQ's brokers. RocketMQ's do not report them."""
        rows: list[tuple[str, int]] = []
        for broker in sorted(self._brokers):
            with suppress(NotSupported):
                parked = self._admin.transactions.pending(state="parked", broker=broker)
                rows += [(item.broker, item.half_offset) for item in parked]
        return self._spark.createDataFrame(rows, PARKED)

    def topic_begin_times(self) -> DataFrame | None:
        """Return the store time of the first message of each topic read."""
        return self._spark.createDataFrame(self._begin_times, BEGIN_TIMES)

    # -- inside ------------------------------------------------------------------------------

    def _half_ends(
        self, cluster: Cluster, halves: Sequence[MessageQueue], window: RunWindow
    ) -> Positions:
        """Return the offsets up to which halves are read. Some are younger than the range: if a
        broker's clock was set back, they are older than their op records say."""
        until_ms = window.until_ms + CLOCK_SLACK_MS
        if until_ms >= window.now_ms:
            return cluster.end_offsets(halves)
        return cluster.offsets_at_times(self._broker_times(halves, until_ms))

    def _begin_times_of(
        self, cluster: Cluster, queues: Sequence[MessageQueue]
    ) -> list[tuple[str, str, dt.datetime | None]]:
        """Return the store time of each topic's first message on each broker, if none of its
        messages was removed yet."""
        by_topic: dict[tuple[str, str], list[MessageQueue]] = {}
        for queue in queues:
            by_topic.setdefault((queue.broker_name, queue.topic), []).append(queue)
        oldest = cluster.first_messages(queues)
        found: list[tuple[str, str, dt.datetime | None]] = []
        for (broker, topic), own in by_topic.items():
            if any(queue not in oldest or oldest[queue][0] for queue in own):
                continue
            times = [oldest[queue][1] for queue in own if oldest[queue][1] >= 0]
            began_ms = min(times) - self._ahead_ms.get(broker, 0) if times else None
            found.append((broker, topic, None if began_ms is None else to_spark_time(began_ms)))
        return found

    def _broker_times(
        self, queues: Iterable[MessageQueue], time_ms: int
    ) -> dict[MessageQueue, int]:
        """Convert a time of this machine's clock to the clocks of the queues' brokers."""
        return {q: max(0, time_ms + self._ahead_ms.get(q.broker_name, 0)) for q in queues}

    def _start_offsets(
        self, cluster: Cluster, queues: Iterable[MessageQueue], window: RunWindow
    ) -> Positions:
        """Return the offset at which to start in each queue: some time before the end of the last
        run. In a queue that was never read, it is where the user wants to begin."""
        before: RunProgress = window.before
        known = {queue: at for queue in queues if (at := before.position(queue)) is not None}
        new = [queue for queue in queues if queue not in known]
        again = cluster.offsets_at_times(self._broker_times(known, window.reread_from_ms))
        found = {queue: min(at, again[queue]) for queue, at in known.items()}
        if window.since_ms:
            return found | cluster.offsets_at_times(self._broker_times(new, window.since_ms))
        return found | cluster.first_offsets(new)

    def _queues(self, cluster: Cluster, topic: str, window: RunWindow) -> list[MessageQueue]:
        """Return the queues of a topic. Raises DataLost if a queue of the last run is missing and
        has messages that were not read."""
        found = [
            queue
            for queue in cluster.queues(topic)
            if queue.broker_name not in self.skipped_brokers
        ]
        missing = [
            queue
            for queue in window.before.queues(topic)
            if queue not in found and queue.broker_name not in self.skipped_brokers
        ]
        self._require_brokers(cluster, missing, {queue.broker_name for queue in found}, window)
        self._require_read(cluster, missing, window)
        return found

    def _require_brokers(
        self,
        cluster: Cluster,
        missing: Iterable[MessageQueue],
        present: Collection[str],
        window: RunWindow,
    ) -> None:
        """Raise DataLost for a queue whose broker has none of its topic. Name servers do not list a
        broker that is down."""
        for queue in missing:
            if queue.broker_name in present:
                continue
            if queue.broker_name in cluster.refresh_brokers():
                what = "is not there any more: bring its topic back, or leave it out (--skip-topic)"
            else:
                what = (
                    "is not known to the name servers: start the broker, or leave it out "
                    "(--skip-broker)"
                )
            at = window.before.position(queue)
            raise DataLost(f"{_queue_name(queue)}, which the last run has read up to {at}, {what}")

    def _require_read(
        self, cluster: Cluster, missing: Collection[MessageQueue], window: RunWindow
    ) -> None:
        """Raise DataLost, or log it, if unread messages remain in queues that their topic no longer
        offers for reading. Brokers still report the ends of such queues, but refuse to send their
        messages."""
        ends = cluster.end_offsets(missing)
        starts = self._start_offsets(cluster, missing, window)
        for queue in sorted(missing):
            if starts[queue] >= ends[queue]:
                continue
            text = (
                f"{_queue_name(queue)} cannot be read any more: its topic has fewer read "
                f"queues now, and {starts[queue]} to {ends[queue] - 1} remain to be read"
            )
            if UserOptions(self._options).flag("failOnDataLoss", default=True):
                raise DataLost(
                    f"{text}. Raise the number of read queues again until they are older than the "
                    "lookback (--lookback), or set failOnDataLoss=false (--option) to continue "
                    "without them"
                )
            _log.warning("%s; failOnDataLoss=false, so the run continues without them", text)

    def _require_topics(self, queues: Iterable[MessageQueue], brokers: BrokersByTopic) -> None:
        """Raise RouteMissing if a topic is missing on a broker that has halves for it."""
        there = {(queue.topic, queue.broker_name) for queue in queues}
        for topic, names in sorted(brokers.items()):
            for broker in sorted(names - self.skipped_brokers):
                if (topic, broker) not in there:
                    raise RouteMissing(
                        f"the topic {topic!r}, for which broker {broker!r} has half messages, has "
                        "no queue there: bring it back, or leave it out (--skip-topic)"
                    )

    def _cluster(self) -> Cluster:
        given = UserOptions(self._options)
        return Cluster(parse_access(given, needs_name_server=True), tries=4, try_again_ms=1_000)

    def _read(self, starts: Positions, ends: Positions, *, has_body: bool = False) -> DataFrame:
        has_digest = self._compares_bodies and not has_body
        columns = COLUMNS + (", body binary" if has_body or has_digest else "")
        reader = self._spark.read.format("escrowmq").schema(columns).options(**self._options)
        offsets = to_offsets({queue: ends[queue] for queue in starts})
        frame = (
            reader.option("includeSystemTopics", "true")
            .option("includeBody", str(has_body or has_digest).lower())
            .option("subscribe", ",".join(offsets))
            .option("startingOffsets", json.dumps(to_offsets(starts)))
            .option("endingOffsets", json.dumps(offsets))
            .load()
        )
        frame = broker_clocks.with_corrected_times(frame, self._ahead_ms)
        if has_body:
            return frame
        return frame.withColumn("body", body_digest() if has_digest else F.lit(None).cast("binary"))

    def _without_skipped(self, frame: DataFrame) -> DataFrame:
        return without_topics(frame, self.skipped)


def _queue_name(queue: MessageQueue) -> str:
    return f"queue {queue.queue_id} of {queue.topic!r} on broker {queue.broker_name!r}"


def body_digest() -> Column:
    """A digest of a body, to compare bodies."""
    return F.unhex(F.md5("body"))


def refuse_selecting_options(options: Mapping[str, str]) -> None:
    """Raise UsageError for an option of the source that would leave out some messages: they would
    be reported as missing."""
    given = UserOptions(options)
    for name in SELECTING_OPTIONS:
        if given.has(name):
            raise UsageError(
                f"the option {name} would leave out messages that must be compared; do not "
                "set it (--since, --until and --skip-topic choose what a run examines)"
            )


def without_skipped(frame: DataFrame, source: TransactionSource) -> DataFrame:
    """Return the messages without those of topics and brokers that a run leaves out."""
    broker = F.coalesce("brokerName", F.lit(""))
    frame = frame.where(~broker.isin(sorted(source.skipped_brokers)))
    return without_topics(frame, source.skipped)


def without_topics(frame: DataFrame, skipped: Iterable[str]) -> DataFrame:
    """Return the messages without those of some topics, and without their halves."""
    return frame.where(~is_of_topics(skipped))


def is_of_topics(topics: Iterable[str]) -> Column:
    """Whether a message belongs to some topics, or waits for its delivery to one, as halves do."""
    names = sorted(topics)
    if not names:
        return F.lit(False)
    real = F.col("properties").getItem("REAL_TOPIC")
    return F.col("topic").isin(names) | F.coalesce(real, F.lit("")).isin(names)


def _positions_of(positions: Positions, *, topic: str) -> Positions:
    return {queue: at for queue, at in positions.items() if queue.topic == topic}
