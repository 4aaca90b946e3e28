"""Spark's stream reader for `spark.readStream.format("escrowmq")`; options limit the size of its
batches.

A batch begins where the one before ended, according to Spark's checkpoint. Spark does not store the
start of the first batch. So it is stored in that batch's end (stream_place.py), and a query begins
with an empty batch: the start is in the checkpoint before the first message is read.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from typing import Any

import msgspec
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from escrowmq.client.core.routes import MessageQueue
from escrowmq.errors import EscrowMQError
from escrowmq.pipeline.brokers.ranges import (
    Positions,
    QueueRange,
    backlog_count,
    positions_after,
    ranges_between,
)
from escrowmq.pipeline.source.batch import RangesPart, divide_ranges, read_part
from escrowmq.pipeline.source.batch_limits import limit_ranges
from escrowmq.pipeline.source.offsets import (
    find_queues,
    look_up_offsets,
    readable_starts,
    within_ends,
)
from escrowmq.pipeline.source.options import SourceOptions
from escrowmq.pipeline.source.pulling import estimated_size
from escrowmq.pipeline.source.queues import (
    StreamQueues,
    report_recreated,
    report_shortened,
    report_unreadable,
    was_recreated,
)
from escrowmq.pipeline.source.schema import arrow_schema
from escrowmq.pipeline.source.stream_place import (
    Offset,
    QueueIdentities,
    StreamPosition,
    decode_position,
    encode_position,
)
from escrowmq.pipeline.source.user_errors import shorten_traceback

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    HAS_LIMITS = True
except ImportError:  # PySpark 4.1 and before
    HAS_LIMITS = False

_log = logging.getLogger(__name__)


class _CachedStarts(msgspec.Struct, frozen=True):
    """The cached result of `_start_offsets`, with the position and the ends for which it is
    valid."""

    since: StreamPosition
    ends: Positions
    lows: Positions
    births: QueueIdentities


class StreamReader(DataSourceStreamReader):
    """Code shared by both forms: with limits (PySpark 4.2) and without (4.1)."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(schema)
        self._opened: StreamQueues | None = None
        self._initial: Positions | None = None
        self._target: Positions | None = None
        self._has_target = False
        self._triggered_ms = 0
        self._seen: _CachedStarts | None = None
        self._planned: Offset | None = None
        """The end of the batch that this process planned last."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for executors, which get what they need to read, and no connection."""
        return {"_options": self._options, "_schema": self._schema}

    # -- where -------------------------------------------------------------------------------

    @shorten_traceback
    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return where a new query begins. Called again after a crash; see stream_place.py."""
        return encode_position(StreamPosition(self._beginning(), is_initial=True))

    def _beginning(self) -> Positions:
        if self._initial is None:
            options, cluster = self._options, self._queues().cluster
            known = find_queues(cluster, options)
            if not options.pattern:
                options.start.require_known(known)
            start = look_up_offsets(cluster, known, options.start)
            fails_on_loss = options.pulling.fails_on_loss
            start = within_ends(cluster, start, options.start, fails_on_loss=fails_on_loss)
            self._initial = readable_starts(cluster, start, fails_on_loss=fails_on_loss)
        return self._initial

    @shorten_traceback
    def reportLatestOffset(self) -> Offset | None:  # noqa: N802 - Spark's name
        """Return the ends of all queues, for the progress report and its lag."""
        ends = self._opened.ends if self._opened is not None else {}
        return encode_position(StreamPosition(ends)) if ends else None

    @shorten_traceback
    def commit(self, end: Offset) -> None:
        """Commit the query's progress at the brokers, if configured; the checkpoint is
        authoritative."""
        if not self._options.commits_offsets:
            return
        try:
            self._queues().cluster.commit_offsets(
                self._options.pulling.group, decode_position(end).at
            )
        except EscrowMQError as error:
            _log.warning("this query's progress could not be committed at the brokers: %s", error)

    # -- what --------------------------------------------------------------------------------

    @shorten_traceback
    def partitions(self, start: Offset, end: Offset) -> list[RangesPart]:
        """Return the range between two positions, divided among tasks."""
        until = decode_position(end)
        since = decode_position(start)
        lows = since.at
        if since.is_initial and until.began is not None:
            lows = until.began
        # Where the batch was planned to begin in queues that are new, or were recreated. If the
        # batch is repeated, they may begin elsewhere by now.
        lows = lows | {
            queue: born[0]
            for queue, born in until.births.items()
            if queue not in lows or was_recreated(queue, since.births, until.births)
        }
        cut = _shortened(lows, until.at, since.births, until.births)
        highs = {queue: high for queue, high in until.at.items() if queue not in cut}
        ranges = self._ranges(lows, highs, reported=since.gone)
        if end != self._planned:
            ranges = self._without_recreated(ranges, until.births)
        return divide_ranges(ranges, self._options)

    @shorten_traceback
    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read the rows of a partition."""
        return read_part(partition, self._options, self._schema)

    def _ranges(
        self, lows: Positions, highs: Positions, *, reported: Collection[MessageQueue]
    ) -> list[QueueRange]:
        unread = {q: lows.get(q, 0) for q, high in highs.items() if lows.get(q) != high}
        if not unread:
            return []
        cluster = self._queues().cluster
        there = self._queues().require_readable(unread)
        found = {queue: lows[queue] for queue in there if queue in lows}
        found |= cluster.first_offsets(queue for queue in there if queue not in lows)
        for queue, low in found.items():
            if low > highs[queue]:
                why = f"ends at {highs[queue]}"
                found[queue] = self._restart_queue(queue, low, why, is_told=queue in reported)
        found = readable_starts(cluster, found, fails_on_loss=self._options.pulling.fails_on_loss)
        return ranges_between(found, {queue: highs[queue] for queue in found})

    def _without_recreated(
        self, ranges: list[QueueRange], births: QueueIdentities
    ) -> list[QueueRange]:
        """Return the ranges of a batch that another process has planned, without those of queues
        that were recreated since. Raise DataLost for such a queue if the options say so."""
        now = self._queues().identities(each.queue for each in ranges if each.queue in births)
        kept = []
        for each in ranges:
            if was_recreated(each.queue, births, now):
                fails_on_loss = self._options.pulling.fails_on_loss
                report_unreadable(each, fails_on_loss=fails_on_loss)
            else:
                kept.append(each)
        return kept

    # -- how much ----------------------------------------------------------------------------

    def _next_end(self, start: Offset, rows_max: int, size_max: int, rows_min: int) -> Offset:
        """Return the end of the next batch; the start itself if there is none."""
        since = decode_position(start)
        ends, gone = self._current_ends(since)
        lows, known = self._start_offsets(since, ends)
        highs = {queue: max(end, lows[queue]) for queue, end in self._bounded_ends(ends).items()}
        ranges = ranges_between(lows, highs)
        if not self._has_enough_rows(ranges, rows_min):
            if not (since.is_initial or _shortened(since.at, lows, since.births, known)):
                return start
            ranges, highs = [], dict(lows)  # an empty batch: only its position matters
        # A queue that is not read from its first message on must be known by that as well.
        unknown = {queue for queue in ends if lows[queue] and queue not in known}
        births = self._queues().identities({each.queue for each in ranges} | unknown)
        for queue in births:
            if was_recreated(queue, known, births):
                lows[queue] = self._restart_queue(
                    queue, lows[queue], "its first message is another"
                )
        kept = _without_removed(lows, highs, births)
        ranges = self._limit_batch(ranges_between(kept, highs), rows_max, size_max)
        self._triggered_ms = self._queues().now_ms()
        began = since.at if since.is_initial else None
        place = StreamPosition(
            positions_after(kept, ranges), began, births=known | births, gone=frozenset(gone)
        )
        self._planned = encode_position(place)
        return self._planned

    def _limit_batch(
        self, ranges: list[QueueRange], rows_max: int, size_max: int
    ) -> list[QueueRange]:
        if rows_max:
            ranges = limit_ranges(ranges, rows_max)
        if size_max and ranges:
            size = estimated_size(ranges, self._options)
            ranges = limit_ranges(ranges, max(1, int(size_max / size)))
        return ranges

    def _current_ends(self, since: StreamPosition) -> tuple[Positions, set[MessageQueue]]:
        """Return the end of each queue, and which of the queues read have disappeared."""
        ends, gone = self._queues().current_ends(since.at, since.gone)
        if self._has_target and self._target is None:
            self._target = dict(ends)
        return ends, gone

    def _start_offsets(
        self, since: StreamPosition, ends: Positions
    ) -> tuple[Positions, QueueIdentities]:
        """Return where the next batch begins in each queue, and the births of the queues, by which
        a recreated topic is recognised. The result is cached while neither the position nor an end
        changes: Spark asks every 10 ms, and so brokers are not asked and nothing is logged
        again."""
        if self._seen is None or (self._seen.since, self._seen.ends) != (since, ends):
            self._seen = _CachedStarts(since, dict(ends), *self._look_up_starts(since, ends))
        return dict(self._seen.lows), dict(self._seen.births)

    def _look_up_starts(
        self, since: StreamPosition, ends: Positions
    ) -> tuple[Positions, QueueIdentities]:
        queues = self._queues()
        lows, births = dict(since.at), dict(since.births)
        lows |= queues.cluster.first_offsets(queue for queue in ends if queue not in lows)
        back = {queue for queue in since.gone if queue in ends}
        now = queues.identities(back | {queue for queue, end in ends.items() if end < lows[queue]})
        cut = _shortened(lows, ends, births, now)
        for queue, end in ends.items():
            is_told = queue in back
            if queue in cut:
                fails_on_loss = self._options.pulling.fails_on_loss and not is_told
                report_shortened(queue, reached=lows[queue], end=end, fails_on_loss=fails_on_loss)
                lows[queue] = end
                continue
            if end < lows[queue]:
                why, is_other = f"ends at {end}", True
            else:
                why, is_other = "its first message is another", was_recreated(queue, births, now)
            if is_other:
                lows[queue] = self._restart_queue(queue, lows[queue], why, is_told=is_told)
                births.pop(queue, None)
        return lows, births | now

    def _bounded_ends(self, ends: Positions) -> Positions:
        """Return the ends up to which to read now."""
        if self._target is None:
            return ends
        target = self._target
        return {queue: min(end, target.get(queue, 0)) for queue, end in ends.items()}

    def _restart_queue(
        self, queue: MessageQueue, reached: int, why: str, *, is_told: bool = False
    ) -> int:
        """Return the start in a queue that was recreated. Raise DataLost instead if the options say
        so, unless `is_told`."""
        fails_on_loss = self._options.pulling.fails_on_loss and not is_told
        report_recreated(queue, reached=reached, why=why, fails_on_loss=fails_on_loss)
        return self._queues().cluster.first_offsets([queue])[queue]

    def _has_enough_rows(self, ranges: list[QueueRange], rows_min: int) -> bool:
        if not ranges:
            return False
        if not rows_min or self._target is not None or backlog_count(ranges) >= rows_min:
            return True
        now_ms = self._queues().now_ms()
        # A restarted query waits the whole delay, because the time of its last batch is unknown.
        self._triggered_ms = self._triggered_ms or now_ms
        return now_ms - self._triggered_ms >= self._options.limits.delay_ms

    def _queues(self) -> StreamQueues:
        if self._opened is None:
            self._opened = StreamQueues(self._options)
        return self._opened


def _shortened(
    lows: Positions, ends: Positions, before: QueueIdentities, now: QueueIdentities
) -> set[MessageQueue]:
    """Return the queues that end before their position although they are the ones that were read,
    by their first message: their broker lost the last ones. If retention has removed the first one
    as well, that is unknown."""
    return {
        queue
        for queue, end in ends.items()
        if end < lows.get(queue, 0) and queue in before and before[queue] == now.get(queue)
    }


def _without_removed(lows: Positions, highs: Positions, births: QueueIdentities) -> Positions:
    """Return the starts, moved past messages that retention has removed, so that no limit counts
    those."""
    first = {queue: min(born[0], highs[queue]) for queue, born in births.items()}
    return {queue: max(low, first.get(queue, 0)) for queue, low in lows.items()}


class PlainStreamReader(StreamReader):
    """The stream reader for PySpark 4.1, which passes no limits, so that every batch has all
    available messages. It does not say either whether a batch is the first one; every process
    starts as if it were."""

    _last: Offset | None = None

    @shorten_traceback
    def latestOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the end of the next batch."""
        if self._last is None:
            began = self._beginning()
            ends, _ = self._queues().current_ends({})
            self._last = encode_position(StreamPosition(began | ends, began))
            return self._last
        self._last = self._next_end(self._last, 0, 0, 0)
        return self._last


if HAS_LIMITS:

    class LimitedStreamReader(StreamReader, SupportsTriggerAvailableNow):
        """The stream reader for PySpark 4.2 and later."""

        @shorten_traceback
        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
            """Stop the query at the present ends: read no messages that arrive from now on."""
            self._has_target = True  # looked up with the first batch, which comes at once

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
            """Return the limit from the options. If there are several, the others are applied
            here."""
            limits = self._options.limits
            if limits.rows_max:
                return ReadMaxRows(limits.rows_max)
            if limits.size_max:
                return ReadMaxBytes(limits.size_max)
            if limits.rows_min:
                return ReadMinRows(limits.rows_min)
            return ReadAllAvailable()

        @shorten_traceback
        def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
            """Return the end of the next batch, within a limit."""
            if isinstance(limit, ReadAllAvailable):
                return self._next_end(start, 0, 0, 0)
            limits = self._options.limits
            rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
            size_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else limits.size_max
            return self._next_end(start, rows_max, size_max, limits.rows_min)


def make_stream_reader(options: SourceOptions, schema: StructType) -> StreamReader:
    """Make the reader for this release of PySpark."""
    if HAS_LIMITS:
        return LimitedStreamReader(options, schema)
    if options.limits.rows_max or options.limits.size_max or options.limits.rows_min:
        _log.warning(
            "this release of PySpark passes no limits to Python sources (4.2 does): "
            "maxOffsetsPerTrigger, maxBytesPerTrigger and minOffsetsPerTrigger have no effect"
        )
    return PlainStreamReader(options, schema)
