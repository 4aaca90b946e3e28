"""Reads queues as a batch: everything between two positions, which are fixed at planning."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from escrowmq.client.core.routes import MessageQueue
from escrowmq.errors import UsageError
from escrowmq.pipeline.brokers.cluster import Cluster
from escrowmq.pipeline.brokers.ranges import Positions, QueueRange, partition_ranges, ranges_between
from escrowmq.pipeline.source.offsets import (
    find_queues,
    look_up_offsets,
    readable_starts,
    within_ends,
)
from escrowmq.pipeline.source.options import SourceOptions
from escrowmq.pipeline.source.pruning import ReadBounds, bounds_from_filters
from escrowmq.pipeline.source.reading import ReadSettings, read_ranges
from escrowmq.pipeline.source.schema import arrow_schema
from escrowmq.pipeline.source.user_errors import shorten_traceback
from escrowmq.pipeline.workers import speed_up_process

_log = logging.getLogger(__name__)


class RangesPart(InputPartition):
    """The offset ranges that one task reads."""

    def __init__(self, ranges: Sequence[QueueRange]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)


class _HiddenMethod:
    """A method that Spark calls but does not detect. Spark refuses every read by a reader that
    overrides `pushFilters` while `spark.sql.python.filterPushdown.enabled` is off, as it is by
    default, and detects an override by `__func__`. With the setting on, Spark calls the method as
    usual."""

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, work: Callable[[list[Any]], Iterable[Any]]) -> None:
        self._work = work

    def __call__(self, filters: list[Any]) -> Iterable[Any]:
        return self._work(filters)


def divide_ranges(ranges: Sequence[QueueRange], options: SourceOptions) -> list[RangesPart]:
    """Divide ranges among tasks, according to the options."""
    parts = partition_ranges(
        ranges,
        records_max=options.records_max,
        partitions_min=options.partitions_min,
        partitions_max=options.partitions_max,
    )
    return [RangesPart(part) for part in parts]


def read_part(partition: InputPartition, options: SourceOptions, schema: bytes) -> Iterator[Any]:
    """Read the rows of a task's part. If there are no ranges, Spark makes one task without any."""
    ranges = partition.ranges if isinstance(partition, RangesPart) else ()
    return read_ranges(ranges, make_reading(options, schema, ranges))


class QueuesReader(DataSourceReader):
    """Reads queues: plans on the driver, reads in the executors."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(schema)
        self._bounds = ReadBounds()
        self._topics: tuple[str, ...] = ()
        if options.pushes_filters:
            self.pushFilters = _HiddenMethod(self._push_filters)

    @shorten_traceback
    def partitions(self) -> list[RangesPart]:
        """Return the ranges to read, divided among tasks."""
        speed_up_process()
        options = self._options
        cluster = Cluster(options.access, tries=options.tries, try_again_ms=options.try_again_ms)
        try:
            ranges = self._ranges(cluster)
        finally:
            cluster.close()
        self._topics = tuple(dict.fromkeys(each.queue.topic for each in ranges))
        return divide_ranges(ranges, options)

    @shorten_traceback
    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read the rows of a partition."""
        return read_part(partition, self._options, self._schema)

    def _push_filters(self, filters: list[Any]) -> Iterable[Any]:
        self._bounds = bounds_from_filters(filters)
        return filters  # Spark judges each row all the same

    def _ranges(self, cluster: Cluster) -> list[QueueRange]:
        options = self._options
        known = find_queues(cluster, options)
        if options.pattern:
            if not known:
                _log.warning("no topic matches subscribePattern=%r", options.pattern)
        else:
            options.start.require_known(known)
            options.end.require_known(known)
        queues = [each for each in known if self._bounds.allows_queue(each)]
        start = look_up_offsets(cluster, queues, options.start)
        fails_on_loss = options.pulling.fails_on_loss
        end = look_up_offsets(cluster, queues, options.end)
        end = within_ends(cluster, end, options.end, fails_on_loss=fails_on_loss)
        if options.start.group:
            start = within_ends(cluster, start, options.start, fails_on_loss=fails_on_loss)
        start = readable_starts(cluster, start, fails_on_loss=fails_on_loss)
        _require_order(start, end, options)
        ranges = self._bounds.clip(ranges_between(start, end))
        return self._bounds.clip_times(ranges, cluster.offsets_at_times) if ranges else ranges


def make_reading(
    options: SourceOptions, schema: bytes, ranges: Iterable[QueueRange]
) -> ReadSettings:
    """Collect what an executor needs to read ranges."""
    topics = {each.queue.topic for each in ranges}
    return ReadSettings(
        access=options.access,
        pulling=options.pulling,
        subscriptions={topic: options.subscription(topic) for topic in topics},
        is_filtered=options.is_filtered,
        schema=schema,
    )


def _require_order(start: Positions, end: Positions, options: SourceOptions) -> None:
    for queue, low in start.items():
        if low > end[queue] and options.start.offsets is not None:
            raise UsageError(
                f"{options.start.option} puts {_name(queue)} at {low}, and {options.end.option} "
                f"at {end[queue]}, which is before it"
            )


def _name(queue: MessageQueue) -> str:
    return f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name}"
