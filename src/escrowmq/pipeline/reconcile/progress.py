"""How far a job has read, and what it reads next."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

import msgspec

from escrowmq.client.core.routes import MessageQueue
from escrowmq.errors import UsageError
from escrowmq.pipeline.brokers.ranges import Positions

Offsets = dict[str, dict[str, dict[str, int]]]
"""By topic, broker and queue, as options of the source say it."""


class RunProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run ended. The next one goes on from here."""

    run: int = 0
    """The number of the run; 0 before the first."""

    until_ms: int = 0
    """Halves stored before this time were looked at."""

    ends: Offsets = {}
    """The offset behind the last one that was read; for store files, of the log."""

    of: str = "halves"
    """What was looked at: halves, announced commits, or the funnel's transactions. Each has its own
    folder."""

    def position(self, queue: MessageQueue) -> int | None:
        """Where reading goes on in a queue; None when it was never read."""
        brokers = self.ends.get(queue.topic, {})
        return brokers.get(queue.broker_name, {}).get(str(queue.queue_id))

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that were read."""
        return [
            MessageQueue(topic, broker, int(queue_id))
            for broker, queues in self.ends.get(topic, {}).items()
            for queue_id in queues
        ]


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """What one run looks at."""

    before: RunProgress
    now_ms: int
    until_ms: int
    """Halves stored before this time are looked at; younger ones are still on their way."""

    since_ms: int = 0
    """Where to begin in what was never read; 0 is the oldest that is kept."""

    lookback_ms: int = 0
    """So much of what the last run has read is read again."""

    @property
    def again_ms(self) -> int:
        """What was stored from this time on is read again."""
        return max(self.since_ms, self.before.until_ms - self.lookback_ms)


def make_window(
    before: RunProgress,
    *,
    now_ms: int,
    grace_ms: int,
    lookback_ms: int,
    since_ms: int = 0,
    until_ms: int = 0,
) -> Window:
    """What to look at now; `until_ms` names an end that is earlier than the grace allows."""
    last_ms = now_ms - grace_ms
    if until_ms > last_ms:
        raise UsageError(
            f"the end of the range is {(until_ms - last_ms) / 1000:.0f} s too young: halves need "
            f"{grace_ms / 1000:.0f} s to be settled; choose an earlier end, or a smaller grace"
        )
    if lookback_ms < grace_ms:
        raise UsageError(
            f"a lookback of {lookback_ms / 1000:.0f} s is less than the grace of "
            f"{grace_ms / 1000:.0f} s, so that young messages would never be judged; raise it"
        )
    return Window(
        before=before,
        now_ms=now_ms,
        # A clock that was set back, or a range that was looked at before: nothing is read twice.
        until_ms=max(before.until_ms, until_ms or last_ms),
        since_ms=since_ms,
        lookback_ms=lookback_ms,
    )


def as_offsets(positions: Positions) -> Offsets:
    """Positions as options say them."""
    found: Offsets = {}
    for queue, queue_offset in sorted(positions.items()):
        brokers = found.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = queue_offset
    return found


def merged(parts: Iterable[Offsets]) -> Offsets:
    """All of them; of a queue that stands in several the last one counts."""
    found: Offsets = {}
    for part in parts:
        for topic, brokers in part.items():
            known = found.setdefault(topic, {})
            for broker, queues in brokers.items():
                known[broker] = known.get(broker, {}) | queues
    return found


def topics_of(offsets: Offsets, *, without: Iterable[str]) -> set[str]:
    """The topics that were read, but for some."""
    return offsets.keys() - set(without)


def moment(time_ms: int) -> dt.datetime:
    """A time as Spark wants it."""
    return dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC)
