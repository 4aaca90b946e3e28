"""Messages of one queue that were fetched and are not done with, and how far the group is."""

from __future__ import annotations

import collections
import heapq
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from escrowmq.client.core.message import ReceivedMessage

M = TypeVar("M", bound=ReceivedMessage)


class Shelf(Generic[M]):
    """Messages are done with in any order; the offset that may be committed is the lowest that is
    not done with, so that a crash repeats messages and loses none."""

    def __init__(self, *, next_offset: int) -> None:
        self.next_offset = next_offset
        """The offset to fetch from next."""
        self.generation = 0
        """Grows with each reset; what belongs to an older one does not count any more."""
        self.size = 0
        """Bytes of the bodies that are here."""
        self._waiting: collections.deque[M] = collections.deque()
        self._open: dict[int, int] = {}
        self._heap: list[int] = []

    @property
    def count(self) -> int:
        """Messages that are not done with."""
        return len(self._open)

    @property
    def waiting_count(self) -> int:
        """Messages that nobody has taken."""
        return len(self._waiting)

    @property
    def span(self) -> int:
        """How far the lowest and the highest offset are from one another."""
        return self.next_offset - self.commit_offset if self._open else 0

    @property
    def commit_offset(self) -> int:
        """Everything below it is done with."""
        while self._heap and self._heap[0] not in self._open:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else self.next_offset

    def put(self, messages: Iterable[M], *, next_offset: int, hidden: Sequence[M] = ()) -> None:
        """Add what a pull brought. Messages whose offsets are here already are passed over;
        `hidden` ones hold the offset, and nobody takes them."""
        for message in (*messages, *hidden):
            offset = message.queue_offset
            if offset in self._open or offset < self.next_offset:
                continue
            self._open[offset] = len(message.body)
            self.size += len(message.body)
            heapq.heappush(self._heap, offset)
            if message not in hidden:
                self._waiting.append(message)
        self.next_offset = max(self.next_offset, next_offset)

    def take(self, count: int) -> list[M]:
        """At most so many of those that wait, in order."""
        return [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]

    def give_back(self, messages: Sequence[M], *, generation: int) -> None:
        """Put what was taken in front again."""
        if generation == self.generation:
            self._waiting.extendleft(reversed(messages))

    def finish(self, queue_offset: int, *, generation: int) -> bool:
        """A message is done with; whether that mattered."""
        if generation != self.generation:
            return False
        size = self._open.pop(queue_offset, None)
        if size is None:
            return False
        self.size -= size
        return True

    def end(self) -> None:
        """Hand out nothing more. What nobody has taken stays undone, and holds the offset."""
        self._waiting.clear()

    def reset(self, queue_offset: int) -> None:
        """Go on from another offset; what is here is forgotten."""
        self.generation += 1
        self.next_offset = queue_offset
        self.size = 0
        self._waiting.clear()
        self._open.clear()
        self._heap.clear()
