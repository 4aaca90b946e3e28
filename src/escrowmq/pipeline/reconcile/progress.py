"""A job's progress, and the range that it reads next."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

import msgspec

from escrowmq.client.core.routes import MessageQueue
from escrowmq.errors import UsageError
from escrowmq.pipeline.brokers.ranges import Positions

Offsets = dict[str, dict[str, dict[str, int]]]
"""Offsets by topic, broker and queue, in the form of the source's options."""


class RunProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run ended and the next one continues."""

    run: int = 0
    """The number of the run; 0 before the first."""

    until_ms: int = 0
    """Halves stored before this time were covered."""

    ends: Offsets = {}
    """For each queue, the offset after the last message read; for store files, the offset in the
    log."""

    of: str = "halves"
    """What the runs examine: halves, announced commits, or the funnel's transactions. Each has its
    own folder."""

    def position(self, queue: MessageQueue) -> int | None:
        """Return where reading continues in a queue; None if it was never read."""
        brokers = self.ends.get(queue.topic, {})
        return brokers.get(queue.broker_name, {}).get(str(queue.queue_id))

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that were read."""
        return [
            MessageQueue(topic, broker, int(queue_id))
            for broker, queues in self.ends.get(topic, {}).items()
            for queue_id in queues
        ]


class RunWindow(msgspec.Struct, frozen=True, kw_only=True):
    """The range of messages that one run covers."""

    before: RunProgress
    now_ms: int
    until_ms: int
    """Halves stored before this time are covered; younger ones may still be in flight."""

    since_ms: int = 0
    """Where to begin in queues that were never read; 0 is the oldest message."""

    lookback_ms: int = 0
    """This much of the last run's range is read again."""

    @property
    def reread_from_ms(self) -> int:
        """Messages stored from this time on are read again."""
        return max(self.since_ms, self.before.until_ms - self.lookback_ms)


def make_window(
    before: RunProgress,
    *,
    now_ms: int,
    grace_ms: int,
    lookback_ms: int,
    since_ms: int = 0,
    until_ms: int = 0,
) -> RunWindow:
    """Compute the range for a run now. `until_ms` may end it earlier than the grace does."""
    last_ms = now_ms - grace_ms
    if until_ms > last_ms:
        raise UsageError(
            f"the end of the range is {(until_ms - last_ms) / 1000:.0f} s too young: halves "
            f"need {grace_ms / 1000:.0f} s to be settled; choose an earlier end, or a "
            "shorter grace"
        )
    if lookback_ms < grace_ms:
        raise UsageError(
            f"a lookback of {lookback_ms / 1000:.0f} s is less than the grace of "
            f"{grace_ms / 1000:.0f} s, so that young messages would never be judged; raise it"
        )
    return RunWindow(
        before=before,
        now_ms=now_ms,
        # The clock was set back, or the range was examined before: read nothing twice.
        until_ms=max(before.until_ms, until_ms or last_ms),
        since_ms=since_ms,
        lookback_ms=lookback_ms,
    )


def to_offsets(positions: Positions) -> Offsets:
    """Positions in the form of options."""
    found: Offsets = {}
    for queue, queue_offset in sorted(positions.items()):
        brokers = found.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = queue_offset
    return found


def merge_offsets(parts: Iterable[Offsets]) -> Offsets:
    """Merge positions; if a queue is in several, the last one counts."""
    found: Offsets = {}
    for part in parts:
        for topic, brokers in part.items():
            known = found.setdefault(topic, {})
            for broker, queues in brokers.items():
                known[broker] = known.get(broker, {}) | queues
    return found


def topics_of(offsets: Offsets, *, without: Iterable[str]) -> set[str]:
    """The topics read, except some."""
    return offsets.keys() - set(without)


def to_spark_time(time_ms: int) -> dt.datetime:
    """Convert a time to Spark's form."""
    return dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC)
