"""Figures of pop consumption since the start."""

from __future__ import annotations

from escrowmq.base.measure import KeyedCounts


class PopCounts:
    """Counts by group and topic, until one of these is deleted."""

    def __init__(self, redelivered: KeyedCounts) -> None:
        self.stored = KeyedCounts()
        """Records by group, topic, kind and outcome."""
        self.again = redelivered
        """Redelivered messages by group, topic and outcome."""

    def forget_group(self, group: str) -> None:
        """Remove the figures of a deleted group."""
        for counts in (self.stored, self.again):
            counts.remove(group, at=0)

    def forget_topic(self, topic: str) -> None:
        """Remove the figures of a deleted topic."""
        for counts in (self.stored, self.again):
            counts.remove(topic, at=1)
