"""Records when topics were deleted, so that old records are not taken for those of a new topic of
the same name.

RocketMQ has no such record. After its start has read the log, a deleted topic is back, and one
queue mixes the records of both topics.
"""

from __future__ import annotations

from typing import Final

import msgspec

_TOPICS_MAX: Final = 100_000
"""The most deletions that are remembered. The oldest become useless first."""


class Deletion(msgspec.Struct, rename="camel", array_like=True):
    """When a topic was deleted: the end of the log, and the time of its newest record then.

    Both count: a log that lost its end in a power failure is written again at the same offsets,
    later.
    """

    log_end: int
    stored_ms: int
    is_own: bool = False
    """Whether this member of a group made the deletion while it was the master. If a later master's
    log differs from this one before `log_end`, the deletion was never confirmed."""
    before: tuple[int, int] | None = None
    """For an own deletion: end and time of the last confirmed deletion of the topic before it."""

    def covers(self, log_offset: int, stored_ms: int) -> bool:
        """Whether a record existed before the topic was deleted."""
        return log_offset < self.log_end and stored_ms <= self.stored_ms


class DeletedTopics:
    """The deletions of topics whose records may still be in the log."""

    def __init__(self) -> None:
        self.of_topic: dict[str, Deletion] = {}
        self.is_saved = True
        """Whether the deletions are saved in their file."""
        self.latest_ms = 0
        """The latest time of any record, if the clock was once ahead and was set back."""

    def load(self, of_topic: dict[str, Deletion], latest_ms: int) -> None:
        """Set the deletions read from the file."""
        self.of_topic, self.latest_ms = dict(of_topic), latest_ms

    def set_saved(self, *, is_kept: bool) -> None:
        """Set whether the deletions could be saved in their file."""
        self.is_saved = is_kept

    def record_deletion(
        self, topic: str, *, log_end: int, stored_ms: int, confirmed: int | None = None
    ) -> None:
        """Record that a topic is about to be deleted. A group's master passes the offset up to
        which the log is confirmed."""
        known = self.of_topic.pop(topic, None)  # so that it moves to the end, as the newest
        while len(self.of_topic) >= _TOPICS_MAX:
            del self.of_topic[next(iter(self.of_topic))]
        found = Deletion(log_end, max(stored_ms, self.latest_ms))
        if confirmed is not None:
            found.is_own = True
            if known is not None:
                is_confirmed = known.log_end < confirmed
                found.before = (known.log_end, known.stored_ms) if is_confirmed else known.before
        self.of_topic[topic] = found

    def has_own_after(self, log_offset: int) -> bool:
        """Whether this member deleted topics, as a master that was replaced, when its log ended at
        or after this offset. Its present master does not have these deletions: the two logs differ
        from there on."""
        return any(one.is_own and one.log_end >= log_offset for one in self.of_topic.values())

    def undo_own_after(self, log_offset: int) -> list[str]:
        """Remove the deletions that `has_own_after` finds, and return their topics. An earlier,
        confirmed deletion of a topic is restored."""
        undone = [
            topic
            for topic, found in self.of_topic.items()
            if found.is_own and found.log_end >= log_offset
        ]
        for topic in undone:
            before = self.of_topic.pop(topic).before
            if before is not None:
                self.of_topic[topic] = Deletion(*before)
        return undone

    def covers(self, topic: str, log_offset: int, stored_ms: int) -> bool:
        """Whether a record of a topic existed before that topic was deleted."""
        found = self.of_topic.get(topic)
        return found is not None and found.covers(log_offset, stored_ms)

    def note_earlier_times(self, latest_ms: int) -> None:
        """Record that the log has records up to this time, and will get records with earlier
        times."""
        self.latest_ms = max(self.latest_ms, latest_ms)
        for found in self.of_topic.values():
            found.stored_ms = max(found.stored_ms, self.latest_ms)

    def forget_before(self, log_offset: int) -> None:
        """Remove the deletions that concern only records before this log offset. The log now begins
        there."""
        self.of_topic = {
            topic: found for topic, found in self.of_topic.items() if found.log_end > log_offset
        }

    def truncate(self, log_end: int) -> None:
        """Let no deletion cover records from this log offset on, because the log was cut there:
        later records are new."""
        for found in self.of_topic.values():
            found.log_end = min(found.log_end, log_end)
