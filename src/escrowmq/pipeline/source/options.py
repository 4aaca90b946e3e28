"""The options of the source."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from escrowmq.base.fixed_limits import PULL_MESSAGES_MAX
from escrowmq.base.message import Topic
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.subscription import Subscription, parse_subscription
from escrowmq.client.core.validation import check_group
from escrowmq.errors import UsageError
from escrowmq.pipeline.brokers.options import ClusterAccess, UserOptions, parse_access
from escrowmq.pipeline.source.offset_options import (
    EARLIEST,
    LATEST,
    QueuePositions,
    parse_assignment,
    parse_positions,
)

_log = logging.getLogger(__name__)

GROUP: Final = "escrowmq-spark"
"""The default consumer group of sources. All sources share it, because brokers remember every group
that ever sent a request."""

SELECTING_OPTIONS: Final = (
    "tags", "subExpression", "sqlFilter", "startingTimestamp", "startingOffsetsByTimestamp",
    "endingTimestamp", "endingOffsetsByTimestamp", "subscribe", "topic", "subscribePattern",
    "assign",
)  # fmt: skip
"""Options that select messages, besides `startingOffsets` and `endingOffsets`."""

SYSTEM_TOPICS: Final = frozenset({Topic.HALF, Topic.OP, Topic.SCHEDULE, Topic.CHECK_MAX_TIME})
_INT_MAX: Final = (1 << 31) - 1


class BatchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one batch of a stream; 0 for none."""

    rows_max: int = 0
    size_max: int = 0
    rows_min: int = 0
    delay_ms: int = 900_000


class PullOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How executors pull."""

    count: int
    timeout_ms: int
    at_once: int
    group: str
    from_slave: bool
    fails_on_loss: bool


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a source."""

    access: ClusterAccess
    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: dict[str, dict[str, list[int]]] = {}
    start: QueuePositions
    end: QueuePositions
    limits: BatchLimits
    pulling: PullOptions
    partitions_min: int = 0
    partitions_max: int = 0
    records_max: int = 0
    commits_offsets: bool = False
    tags: str = ""
    sql: str = ""
    has_body: bool = True
    properties: str = "map"
    tries: int = 3
    try_again_ms: int = 1_000
    includes_system: bool = False
    store_path: str = ""
    split_size: int = 128 << 20
    checks_crc: bool = True
    pushes_filters: bool = True

    def subscription(self, topic: str) -> Subscription:
        """A topic's subscription for a pull."""
        # `allows_topic` decides whether a broker's own topic may be read.
        name = "own" if is_system_topic(topic) else topic
        return parse_subscription(name, tags=self.tags, sql=self.sql, version=0, wire_topic=topic)

    @property
    def is_filtered(self) -> bool:
        """Whether the broker filters messages."""
        return bool(self.sql) or self.tags not in ("", "*")

    @property
    def named_topics(self) -> tuple[str, ...]:
        """Topics that are named, in contrast to topics found by a pattern."""
        return self.topics or tuple(self.assigned)

    def without_topics(self, topics: Collection[str]) -> SourceOptions | None:
        """Return the same options for the other topics; None if no topic is left."""
        left = tuple(name for name in self.topics if name not in topics)
        assigned = {name: found for name, found in self.assigned.items() if name not in topics}
        if not (left or assigned or self.pattern):
            return None
        return msgspec.structs.replace(self, topics=left, assigned=assigned)

    def selects_queue(self, queue: MessageQueue) -> bool:
        """Whether an existing queue is among those to read."""
        if self.assigned:
            of_topic = self.assigned.get(queue.topic, {})
            return queue.queue_id in of_topic.get(queue.broker_name, [])
        if self.pattern:
            return bool(re.fullmatch(self.pattern, queue.topic)) and self.allows_topic(queue.topic)
        return queue.topic in self.topics

    def allows_topic(self, topic: str) -> bool:
        """Whether a pattern may match a topic."""
        return self.includes_system or not is_system_topic(topic)


def is_system_topic(topic: str) -> bool:
    """Whether a topic is the broker's own."""
    return topic in SYSTEM_TOPICS or topic.lower().startswith(Topic.SYSTEM_PREFIX)


def parse_source_options(options: Mapping[str, str], *, is_stream: bool | None) -> SourceOptions:
    """Parse the options of a batch or a stream; `is_stream` is None if that is not known yet.
    Raises UsageError for the first error."""
    given = UserOptions(options)
    store_path = given.text("storePath")
    topics, pattern, assigned = _parse_topics(given)
    found = SourceOptions(
        access=parse_access(given, needs_name_server=not store_path),
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        start=parse_positions(given, "starting", default=LATEST if is_stream else EARLIEST),
        end=parse_positions(given, "ending", default=LATEST),
        limits=_parse_limits(given),
        pulling=_parse_pulling(given),
        partitions_min=given.number("minPartitions", default=0, high=_INT_MAX),
        partitions_max=given.number("maxPartitions", default=0, high=_INT_MAX),
        records_max=given.number("maxRecordsPerPartition", default=0),
        commits_offsets=given.flag("commitOffsets", default=False),
        tags=given.text("tags", "subExpression"),
        sql=given.text("sqlFilter"),
        has_body=given.flag("includeBody", default=True),
        properties=given.choice("properties", allowed=("map", "string", "none"), default="map"),
        tries=given.number("fetchOffset.numRetries", default=3, high=1_000) + 1,
        try_again_ms=given.span_ms("fetchOffset.retryIntervalMs", default=1_000),
        includes_system=given.flag("includeSystemTopics", default=False),
        store_path=store_path,
        split_size=given.size("splitBytes", default=128 << 20, low=1 << 20),
        checks_crc=given.flag("checkCrc", default=True),
        pushes_filters=given.flag("pushFilters", default=True),
    )
    if not given.flag("includeProperties", default=True):
        found = msgspec.structs.replace(found, properties="none")
    given.refuse_others()
    _check_topics(found)
    _check(found, given, is_stream)
    return found


def _parse_topics(
    given: UserOptions,
) -> tuple[tuple[str, ...], str, dict[str, dict[str, list[int]]]]:
    topics = given.names("subscribe", "topic")
    pattern = given.text("subscribePattern")
    assigned = parse_assignment("assign", given.value("assign")) if given.has("assign") else {}
    if given.has("path"):
        raise UsageError(
            "load(path) has no meaning here; name topics with option subscribe, or the folder of "
            "a store with option storePath"
        )
    try:
        re.compile(pattern)
    except re.error as error:
        raise UsageError(
            f"subscribePattern={pattern!r} is not a regular expression: {error}"
        ) from error
    return topics, pattern, assigned


def _check_topics(found: SourceOptions) -> None:
    count = sum((bool(found.topics), bool(found.pattern), bool(found.assigned)))
    if count > 1 or not (count or found.store_path):
        raise UsageError(
            f"{count} of subscribe, subscribePattern and assign are given; exactly one is expected"
        )


def _parse_limits(given: UserOptions) -> BatchLimits:
    return BatchLimits(
        rows_max=given.number("maxOffsetsPerTrigger", "maxMessagesPerTrigger", default=0),
        size_max=given.size("maxBytesPerTrigger", default=0),
        rows_min=given.number("minOffsetsPerTrigger", default=0),
        delay_ms=given.span_ms("maxTriggerDelay", default=900_000),
    )


def _parse_pulling(given: UserOptions) -> PullOptions:
    group = given.text("group", "kafka.group.id", default=GROUP)
    check_group(group)
    return PullOptions(
        count=given.number("pullBatchSize", default=PULL_MESSAGES_MAX, low=1, high=_INT_MAX),
        timeout_ms=given.span_ms("pullTimeoutMs", default=30_000, low=1),
        at_once=given.number("pullsInFlight", default=4, low=1, high=64),
        group=group,
        from_slave=given.choice("readFrom", allowed=("master", "slave"), default="master")
        == "slave",
        fails_on_loss=given.flag("failOnDataLoss", default=True),
    )


def _check(found: SourceOptions, given: UserOptions, is_stream: bool | None) -> None:
    for topic in [*found.topics, *found.assigned]:
        if not found.allows_topic(topic):
            raise UsageError(
                f"{topic} is the broker's own; set includeSystemTopics=true to read it nevertheless"
            )
        found.subscription(topic)
    limits = found.limits
    if limits.rows_max and limits.rows_min > limits.rows_max:
        raise UsageError(
            f"minOffsetsPerTrigger={limits.rows_min} is more than "
            f"maxOffsetsPerTrigger={limits.rows_max}"
        )
    if found.partitions_max and found.partitions_min > found.partitions_max:
        raise UsageError(
            f"minPartitions={found.partitions_min} is more than "
            f"maxPartitions={found.partitions_max}"
        )
    low, high = found.start.time_ms, found.end.time_ms
    if low is not None and high is not None and low > high:
        raise UsageError(
            f"startingTimestamp={low} is later than endingTimestamp={high}; the range is empty"
        )
    if is_stream is False:
        _warn_of(name for name in _OF_STREAMS if given.has(name))
    if is_stream and found.store_path:
        raise UsageError("storePath is for spark.read; a stream reads from a broker (nameServer)")
    if is_stream and any(given.has(name) for name in _ENDINGS):
        raise UsageError("a stream has no end; ending options are for spark.read")
    if found.store_path:
        _check_files(found)


def _warn_of(names: Iterable[str]) -> None:
    for name in names:
        _log.warning("%s is for streams and has no effect on spark.read", name)


_OF_STREAMS: Final = (
    "maxOffsetsPerTrigger",
    "maxMessagesPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "commitOffsets",
)
_ENDINGS: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")


def _check_files(found: SourceOptions) -> None:
    if found.sql:
        raise UsageError("sqlFilter needs a broker; with storePath use where() on the columns")
    if found.assigned:
        raise UsageError("assign needs a broker; with storePath name topics with subscribe")
    for place in (found.start, found.end):
        if place.offsets is not None or place.times is not None or place.group:
            raise UsageError(
                f"{place.option} by queue or group needs a broker; with storePath use "
                "startingTimestamp and endingTimestamp, or where() on the columns"
            )
