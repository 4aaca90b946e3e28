"""Fetched messages of one queue that are not settled yet, and the group's progress."""

from __future__ import annotations

import collections
import heapq
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from escrowmq.client.core.message import ReceivedMessage

M = TypeVar("M", bound=ReceivedMessage)


class FetchedMessages(Generic[M]):
    """The fetched messages of one queue. They are settled in any order; the offset that may be
    committed is the lowest unsettled one, so that a crash repeats messages and loses none."""

    def __init__(self, *, next_offset: int) -> None:
        self.next_offset = next_offset
        """The offset to fetch from next."""
        self.begin_offset = next_offset
        """The offset where reading began, or to which it was reset: messages from there on are
        fetched again."""
        self.generation = 0
        """A number that grows with each reset; messages of an older generation are ignored."""
        self.size = 0
        """Bytes of the bodies held."""
        self._waiting: collections.deque[M] = collections.deque()
        self._open: dict[int, int] = {}
        self._heap: list[int] = []

    @property
    def unsettled_count(self) -> int:
        """Number of unsettled messages."""
        return len(self._open)

    @property
    def waiting_count(self) -> int:
        """Number of messages that have not been taken."""
        return len(self._waiting)

    @property
    def offset_span(self) -> int:
        """The distance between the lowest and the highest offset."""
        return self.next_offset - self.commit_offset if self._open else 0

    @property
    def commit_offset(self) -> int:
        """The offset below which all messages are settled."""
        while self._heap and self._heap[0] not in self._open:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else self.next_offset

    def add(self, messages: Iterable[M], *, next_offset: int, hidden: Sequence[M] = ()) -> None:
        """Add the messages of a pull, except those that are here already. `hidden` messages are
        never handed out, and the commit offset does not pass them."""
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
        """Take up to `unsettled_count` of the waiting messages, in order."""
        return [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]

    def put_back(self, messages: Sequence[M], *, generation: int) -> None:
        """Put taken messages back in front."""
        if generation == self.generation:
            self._waiting.extendleft(reversed(messages))

    def mark_settled(self, queue_offset: int, *, generation: int) -> bool:
        """Mark a message settled; return whether that changed anything."""
        if generation < self.generation:
            return False
        size = self._open.pop(queue_offset, None)
        if size is None:
            return False
        self.size -= size
        return True

    def stop(self) -> None:
        """Stop handing out messages. Messages that were not taken stay unsettled, so the commit
        offset does not pass them."""
        self._waiting.clear()

    def reset(self, queue_offset: int) -> None:
        """Continue at another offset; forget all messages held."""
        self.generation += 1
        self.next_offset = self.begin_offset = queue_offset
        self.size = 0
        self._waiting.clear()
        self._open.clear()
        self._heap.clear()
