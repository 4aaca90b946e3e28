"""Which records belong to an earlier topic of the same name: the topic was deleted after them.

RocketMQ keeps no such note, so a start that reads the log brings a deleted topic back, and mixes
the records of both topics in one queue."""

from __future__ import annotations

from typing import Final

import msgspec

_TOPICS_MAX: Final = 100_000
"""The most topics that are noted; the oldest notes become useless first."""


class Deletion(msgspec.Struct, rename="camel", array_like=True):
    """A topic was deleted when the log ended at `log_end` and its newest record had the time
    `stored_ms`.

    Both count: a log that lost its end in a power failure is written again at the same offsets,
    later."""

    log_end: int
    stored_ms: int
    is_own: bool = False
    """Whether this member of a group has deleted it, as the master. Where the log that it shares
    with a later master ends before that, its copies never confirmed the deletion."""
    before: tuple[int, int] | None = None
    """Of an own one: the latest deletion of such a topic before it that was confirmed."""

    def covers(self, log_offset: int, stored_ms: int) -> bool:
        """Whether a record existed already when the topic was deleted."""
        return log_offset < self.log_end and stored_ms <= self.stored_ms


class Deleted:
    """The deletions whose records may still be in the log."""

    def __init__(self) -> None:
        self.of_topic: dict[str, Deletion] = {}
        self.is_kept = True
        """Whether the notes are saved in their file."""
        self.latest_ms = 0
        """The latest time of any record, if the clock was once ahead and was set back."""

    def load(self, of_topic: dict[str, Deletion], latest_ms: int) -> None:
        """Read the notes from the file."""
        self.of_topic, self.latest_ms = dict(of_topic), latest_ms

    def kept(self, *, is_kept: bool) -> None:
        """Note whether the notes could be written to their file."""
        self.is_kept = is_kept

    def note(
        self, topic: str, *, log_end: int, stored_ms: int, confirmed: int | None = None
    ) -> None:
        """Note that a topic is about to be deleted; at a group's master, with the offset up to
        which the log is confirmed."""
        known = self.of_topic.pop(topic, None)  # else the newest takes the place of the oldest
        while len(self.of_topic) >= _TOPICS_MAX:
            del self.of_topic[next(iter(self.of_topic))]
        found = Deletion(log_end, max(stored_ms, self.latest_ms))
        if confirmed is not None:
            found.is_own = True
            if known is not None:
                is_confirmed = known.log_end < confirmed
                found.before = (known.log_end, known.stored_ms) if is_confirmed else known.before
        self.of_topic[topic] = found

    def has_own(self, log_offset: int) -> bool:
        """Whether this member has deleted a topic that its group's master has, where their logs
        part at this offset."""
        return any(one.is_own and one.log_end >= log_offset for one in self.of_topic.values())

    def undo_own(self, log_offset: int) -> list[str]:
        """Forget the deletions that `has_own` is about; return their topics."""
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
        """Whether a record of a topic existed already when that topic was deleted."""
        found = self.of_topic.get(topic)
        return found is not None and found.covers(log_offset, stored_ms)

    def note_earlier_times(self, latest_ms: int) -> None:
        """Note that the log has records up to this time, and that those that follow have earlier
        times."""
        self.latest_ms = max(self.latest_ms, latest_ms)
        for found in self.of_topic.values():
            found.stored_ms = max(found.stored_ms, self.latest_ms)

    def forget_before(self, log_offset: int) -> None:
        """The log now begins here: the notes about older records are removed."""
        self.of_topic = {
            topic: found for topic, found in self.of_topic.items() if found.log_end > log_offset
        }

    def cut(self, log_end: int) -> None:
        """The log now ends here; no note may cover the records that follow."""
        for found in self.of_topic.values():
            found.log_end = min(found.log_end, log_end)
