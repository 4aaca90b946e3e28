"""Metrics of transactions by topic, with RocketMQ's names and counting, but without its drift."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from escrowmq.txn.state import State

LATENCY_BOUNDS_S: Final = (5, 60, 600, 3_600, 43_200, 86_400)
"""Upper bounds of the histogram of times from half to commit, in seconds, as in RocketMQ."""

_SOON_MS: Final = LATENCY_BOUNDS_S[0] * 1000
"""The lowest bound in ms: most commits come within it."""


class HalfCounters(msgspec.Struct):
    """Counts of halves since the start of the process."""

    prepared: int = 0
    committed: int = 0
    rolled_back: int = 0
    expired: int = 0
    repeated: int = 0
    contradicted: int = 0
    undone: int = 0


class CheckCounters(msgspec.Struct):
    """Counts of checks since the start of the process."""

    sent: int = 0
    answered: int = 0
    unknown: int = 0
    """Answers that left the transaction open."""
    unanswered: int = 0


class TransactionMeter:
    """Counts pending halves, outcomes and times to commit, by the message's topic."""

    def __init__(self, counters: HalfCounters) -> None:
        self._counters = counters
        self.pending: Counter[str] = Counter()
        self.groups: Counter[str] = Counter()
        """The number of pending halves of each producer group."""
        self.changes = 0
        """The number of changes to the counts of pending halves."""
        self.committed: Counter[str] = Counter()
        self.rolled_back: Counter[str] = Counter()
        self.expired: Counter[str] = Counter()
        self.latency_counts: dict[str, list[int]] = {}
        """For each topic: the number of commits within each bound, and one more for all others; not
        cumulative."""
        self.latency_ms: Counter[str] = Counter()
        self._deleted: set[str] = set()
        """Deleted topics that still have pending halves. Their figures are removed with the last of
        these."""

    def remove_topic(self, topic: str) -> None:
        """Remove the figures of a deleted topic: now, or when its last pending half ends."""
        for counts in (self.committed, self.rolled_back, self.expired, self.latency_ms):
            counts.pop(topic, None)
        self.latency_counts.pop(topic, None)
        if self.pending.get(topic):
            self._deleted.add(topic)
        else:
            self._deleted.discard(topic)
            if self.pending.pop(topic, None) is not None:
                self.changes += 1

    def note_pending(self, topic: str, group: str, change: int) -> None:
        """Add `change` to the number of pending halves of a topic and a group."""
        self.changes += 1
        self.pending[topic] += change
        count = self.groups.get(group, 0) + change
        if count:
            self.groups[group] = count
        else:  # `del` would call a method of Counter in Python
            self.groups.pop(group, None)
        if topic in self._deleted:
            self.remove_topic(topic)

    def note_ended(self, state: State, topic: str, group: str, taken_ms: Sequence[int]) -> None:
        """Count the outcome of halves of a topic and group. `taken_ms`: how long after being stored
        each half was ended."""
        counters, count = self._counters, len(taken_ms)
        is_deleted = topic in self._deleted
        self.note_pending(topic, group, -count)
        if state == State.COMMITTED:
            counters.committed += count
            self.committed[topic] += count
            self._note_latencies(topic, taken_ms)
        elif state == State.ROLLED_BACK:
            counters.rolled_back += count
            self.rolled_back[topic] += count
        else:
            counters.expired += count
            self.expired[topic] += count
        if is_deleted:
            self.remove_topic(topic)

    def note_undone(self, topic: str) -> None:
        """Take back a counted rollback that could not be stored: the half is pending again."""
        if topic in self.rolled_back:  # not deleted since
            self.rolled_back[topic] -= 1
        self._counters.rolled_back -= 1
        self._counters.undone += 1

    def _note_latencies(self, topic: str, taken_ms: Sequence[int]) -> None:
        """Add times from half to commit to a topic's histogram."""
        counts = self.latency_counts.get(topic)
        if counts is None:
            counts = self.latency_counts[topic] = [0] * (len(LATENCY_BOUNDS_S) + 1)
        if max(taken_ms) <= _SOON_MS:
            counts[0] += len(taken_ms)
        else:
            for each_ms in taken_ms:
                counts[bisect_left(LATENCY_BOUNDS_S, each_ms / 1000)] += 1
        self.latency_ms[topic] += sum(taken_ms)
