"""Which records of a topic belong to a life that ended: the topic was deleted behind them.

RocketMQ keeps no such note, so that a start which reads the log brings a deleted topic back, and
takes the records of two lives under one name for one queue.
"""

from __future__ import annotations

from typing import Final

import msgspec

_TOPICS_MAX: Final = 100_000
"""Topics noted at most; the oldest notes are the first to be of no more use."""


class Deletion(msgspec.Struct, rename="camel", array_like=True):
    """A topic was deleted when the log ended at `log_end`, its newest record being of `stored_ms`.

    Both count: a log that lost its end with the power is written again at the same offsets, later.
    """

    log_end: int
    stored_ms: int

    def covers(self, log_offset: int, stored_ms: int) -> bool:
        """Whether a record was there already when the topic was deleted."""
        return log_offset < self.log_end and stored_ms <= self.stored_ms


class Deleted:
    """The deletions whose records may still stand in the log."""

    def __init__(self) -> None:
        self.of_topic: dict[str, Deletion] = {}
        self.is_kept = True
        """Whether the notes are in their file."""
        self.latest_ms = 0
        """The latest time of any record, if the clock was ahead once and went back."""

    def load(self, of_topic: dict[str, Deletion], latest_ms: int) -> None:
        """Take over what the file says."""
        self.of_topic, self.latest_ms = dict(of_topic), latest_ms

    def kept(self, *, is_kept: bool) -> None:
        """The notes were written to their file, or could not be."""
        self.is_kept = is_kept

    def note(self, topic: str, *, log_end: int, stored_ms: int) -> None:
        """A topic is about to be deleted."""
        self.of_topic.pop(topic, None)  # lest the newest note stand where the oldest one stood
        while len(self.of_topic) >= _TOPICS_MAX:
            del self.of_topic[next(iter(self.of_topic))]
        self.of_topic[topic] = Deletion(log_end, max(stored_ms, self.latest_ms))

    def covers(self, topic: str, log_offset: int, stored_ms: int) -> bool:
        """Whether a record of a topic was there already when that was deleted."""
        found = self.of_topic.get(topic)
        return found is not None and found.covers(log_offset, stored_ms)

    def gone_back(self, latest_ms: int) -> None:
        """Records up to this time stand in the log, and those that follow are of earlier ones."""
        self.latest_ms = max(self.latest_ms, latest_ms)
        for found in self.of_topic.values():
            found.stored_ms = max(found.stored_ms, self.latest_ms)

    def forget_before(self, log_offset: int) -> None:
        """The log begins here: older records are gone, and need no note."""
        self.of_topic = {
            topic: found for topic, found in self.of_topic.items() if found.log_end > log_offset
        }

    def cut(self, log_end: int) -> None:
        """The log ends here, and goes on from here with records that no note may cover."""
        for found in self.of_topic.values():
            found.log_end = min(found.log_end, log_end)
