"""Finds the queues, and looks up the offsets of starts and ends."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from escrowmq.client.core.routes import MessageQueue
from escrowmq.errors import DataLost, UsageError
from escrowmq.pipeline.brokers.cluster import Cluster
from escrowmq.pipeline.brokers.ranges import Positions
from escrowmq.pipeline.source.offset_options import EARLIEST, LATEST, QueuePositions
from escrowmq.pipeline.source.options import SourceOptions

_log = logging.getLogger(__name__)


def find_queues(cluster: Cluster, options: SourceOptions) -> list[MessageQueue]:
    """Return the queues selected by the options, as the name servers know them now. Raises
    RouteMissing if a named topic is missing."""
    if options.assigned:
        return _assigned_queues(cluster, options)
    topics = options.topics
    if options.pattern:
        topics = tuple(cluster.topics(options.pattern, options.allows_topic))
    return [queue for topic in topics for queue in cluster.queues(topic)]


def _assigned_queues(cluster: Cluster, options: SourceOptions) -> list[MessageQueue]:
    found = []
    for topic, brokers in sorted(options.assigned.items()):
        known = set(cluster.queues(topic))
        wanted = [
            MessageQueue(topic, broker, queue_id)
            for broker, queue_ids in sorted(brokers.items())
            for queue_id in queue_ids
        ]
        missing = [queue for queue in wanted if queue not in known]
        if missing:
            raise UsageError(
                f"assign names queue {missing[0].queue_id} of {topic} on "
                f"{missing[0].broker_name}, which does not exist; there are "
                f"{_describe(known)}"
            )
        found += wanted
    return found


def look_up_offsets(
    cluster: Cluster, queues: Iterable[MessageQueue], place: QueuePositions
) -> Positions:
    """Look up the offsets of a position. Offsets given as numbers are returned unchanged; the
    reader validates them."""
    queues = list(queues)
    times = {queue: time for queue in queues if (time := place.time_of(queue)) is not None}
    if times:
        return _offsets_at_times(cluster, times, place)
    if place.group:
        return _group_offsets(cluster, queues, place)
    given = {queue: place.offset_of(queue) for queue in queues}
    first = cluster.first_offsets(queue for queue, number in given.items() if number == EARLIEST)
    end = cluster.end_offsets(queue for queue, number in given.items() if number == LATEST)
    return given | first | end


def _group_offsets(
    cluster: Cluster, queues: list[MessageQueue], place: QueuePositions
) -> Positions:
    """Return a consumer group's offsets; the beginning for queues that it has never read."""
    found = cluster.committed_offsets(place.group, queues)
    if queues and not found:
        raise UsageError(
            f"{place.option}=group:{place.group}: no broker keeps an offset of this group in "
            "these topics; check its name for typos, or begin with earliest or at a time"
        )
    return found | cluster.first_offsets(queue for queue in queues if queue not in found)


def _offsets_at_times(
    cluster: Cluster, times: dict[MessageQueue, int], place: QueuePositions
) -> Positions:
    found = cluster.offsets_at_times(times)
    if place.takes_latest:
        return found
    ends = cluster.end_offsets(times)
    for queue, queue_offset in found.items():
        if queue_offset >= ends[queue]:
            raise UsageError(
                f"{place.option}: queue {queue.queue_id} of {queue.topic} on "
                f"{queue.broker_name} has no message from {times[queue]} on; give an earlier "
                "time, or startingOffsetsByTimestampStrategy=latest to begin at its end"
            )
    return found


def readable_starts(cluster: Cluster, start: Positions, *, fails_on_loss: bool) -> Positions:
    """Return the offsets from which reading can start. If a queue no longer has messages from its
    start, raise DataLost, or log it and skip them."""
    found = dict(start)
    for queue, low in cluster.first_offsets(start).items():
        if start[queue] < low:
            report_loss(queue, wanted=start[queue], found=low, fails_on_loss=fails_on_loss)
            found[queue] = low
    return found


def report_loss(
    queue: MessageQueue, *, wanted: int, found: int, fails_on_loss: bool, why: str = ""
) -> None:
    """Raise DataLost, or log it, for the messages from one offset up to another."""
    reason = why or "the broker keeps them no longer (retention), or the topic was recreated"
    text = (
        f"messages {wanted} to {found - 1} of queue {queue.queue_id} of {queue.topic} on "
        f"{queue.broker_name} were wanted, and the next one there is {found}: {reason}"
    )
    if fails_on_loss:
        raise DataLost(f"{text}. Set failOnDataLoss=false to continue without them")
    _log.warning("%s; failOnDataLoss=false, so reading continues without them", text)


def within_ends(
    cluster: Cluster, positions: Positions, place: QueuePositions, *, fails_on_loss: bool
) -> Positions:
    """Return the positions, limited to the ends of the queues. If an offset that was given as a
    number is beyond its end, raise UsageError, or log it."""
    if place.offsets is None and not place.group:
        return positions
    found = dict(positions)
    for queue, end in cluster.end_offsets(positions).items():
        if positions[queue] > end:
            text = (
                f"{place.option} puts queue {queue.queue_id} of {queue.topic} on "
                f"{queue.broker_name} at {positions[queue]}, and it ends at {end}"
            )
            if fails_on_loss:
                raise UsageError(
                    f"{text}; give an offset up to there, or -1 for the end, or set "
                    "failOnDataLoss=false to read up to the end"
                )
            _log.warning("%s; failOnDataLoss=false, so the queue is read up to its end", text)
            found[queue] = end
    return found


def _describe(queues: Iterable[MessageQueue]) -> str:
    by_broker: dict[str, list[str]] = {}
    for queue in sorted(queues):
        by_broker.setdefault(queue.broker_name, []).append(str(queue.queue_id))
    return "; ".join(f"{', '.join(numbers)} on {name}" for name, numbers in by_broker.items())
