"""Groups of messages that wait a moment, to be sent together. Where order matters, the next group
for a destination is sent only after the one before it was answered. Times are in seconds."""

from __future__ import annotations

import collections
from typing import Final, Generic, NamedTuple, TypeVar

from escrowmq.client.core.routes import MessageQueue

GROUP_COUNT_MAX: Final = 4_096
"""Limit of messages in one group, however small: the answer lists each of them."""

T = TypeVar("T")


class BatchDestination(NamedTuple):
    """The destination of messages that may share a batch."""

    topic: str
    order_key: str
    queue: MessageQueue | None

    @property
    def keeps_order(self) -> bool:
        """Whether the order of messages to this destination must be kept."""
        return bool(self.order_key or self.queue is not None)


class MessageGroup(Generic[T]):
    """Messages for one destination that are sent together."""

    __slots__ = ("due_at", "is_due", "is_full", "items", "place", "size")

    def __init__(self, place: BatchDestination, due_at: float) -> None:
        self.place = place
        self.due_at = due_at
        self.items: list[T] = []
        self.size = 0
        self.is_due = False
        self.is_full = False
        """Whether no further message may be added."""


class _DestinationGroups(Generic[T]):
    """The groups for one destination, in order. Messages are added only to the last."""

    __slots__ = ("groups", "is_held")

    def __init__(self) -> None:
        self.groups: collections.deque[MessageGroup[T]] = collections.deque()
        self.is_held = False
        """Whether a group has been handed out and is not answered yet."""


class BatchGroups(Generic[T]):
    """Collects messages into groups: `add` messages, `take_ready` the groups to send now, and
    report each as `release_next`. Call `take_ready` again by `next_due_at`."""

    def __init__(self, *, linger_s: float, size_max: int, count_max: int = GROUP_COUNT_MAX) -> None:
        self._linger_s = linger_s
        self._size_max = size_max
        self._count_max = count_max
        self._lines: dict[BatchDestination, _DestinationGroups[T]] = {}
        self._timed: collections.deque[MessageGroup[T]] = collections.deque()
        self._ready: list[MessageGroup[T]] = []

    @property
    def next_due_at(self) -> float | None:
        """The time when the next group has waited long enough; None if none waits."""
        while self._timed and self._timed[0].is_full:
            self._timed.popleft()  # which is handed out by now, or waits for an answer
        return self._timed[0].due_at if self._timed else None

    def add(
        self, place: BatchDestination, item: T, size: int, *, now: float, is_alone: bool = False
    ) -> bool:
        """Add a message; with `is_alone`, to a group of its own. Return whether groups are ready to
        be sent."""
        line = self._lines.get(place)
        if line is None:
            line = self._lines[place] = _DestinationGroups()
        group = line.groups[-1] if line.groups else None
        if group is None or group.is_full or is_alone or group.size + size > self._size_max:
            if group is not None:
                group.is_full = True
            group = MessageGroup(place, now + self._linger_s)
            line.groups.append(group)
            self._timed.append(group)
        assert not group.is_full
        group.items.append(item)
        group.size += size
        group.is_full = (
            is_alone or group.size >= self._size_max or len(group.items) >= self._count_max
        )
        if line.groups[0].is_full:  # the first is full if another one follows
            self._move_ready(place, line)
        return bool(self._ready)

    def take_ready(self, now: float) -> list[MessageGroup[T]]:
        """Return the groups to send now, in order."""
        timed = self._timed
        while timed and timed[0].due_at <= now:
            self._mark_due(timed.popleft())
        ready, self._ready = self._ready, []
        return ready

    def mark_all_due(self) -> None:
        """Make all waiting groups ready to be sent."""
        while self._timed:
            self._mark_due(self._timed.popleft())

    def release_next(self, group: MessageGroup[T]) -> None:
        """Release the next group for the same destination, now that this one was answered."""
        line = self._lines.get(group.place)
        if line is not None:
            line.is_held = False
            self._move_ready(group.place, line)

    def _mark_due(self, group: MessageGroup[T]) -> None:
        group.is_due = True
        line = self._lines.get(group.place)
        if line is not None:
            self._move_ready(group.place, line)

    def _move_ready(self, place: BatchDestination, line: _DestinationGroups[T]) -> None:
        groups = line.groups
        while groups and not line.is_held and (groups[0].is_full or groups[0].is_due):
            group = groups.popleft()
            group.is_full = True
            self._ready.append(group)
            line.is_held = place.keeps_order
        # A held line is kept even if it is empty: the next messages must wait for the answer.
        if not groups and not line.is_held:
            del self._lines[place]
