"""Back-pressure: limits the messages, and their bytes, in flight."""

from __future__ import annotations

import asyncio
import collections


class InflightLimits:
    """The limits for messages in flight: their count and their bytes. A message above the size
    limit is sent alone."""

    def __init__(self, *, count_max: int, size_max: int) -> None:
        self._count_max = count_max
        self._size_max = size_max
        self._count = 0
        self._size = 0
        self._queue: collections.deque[tuple[asyncio.Future[None], int]] = collections.deque()

    @property
    def waiting_count(self) -> int:
        """Number of senders that wait for capacity."""
        return len(self._queue)

    def try_reserve(self, size: int) -> bool:
        """Reserve capacity for a message immediately. Return False if there is too little, or other
        senders wait already."""
        if self._queue or not self._has_capacity(size):
            return False
        self._count += 1
        self._size += size
        return True

    async def reserve(self, size: int) -> None:
        """Wait until there is capacity for a message, and reserve it. Senders are served in their
        order."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((future, size))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.release(size)  # the room was given in the moment of the cancellation
            else:
                future.cancel()
                self._admit_waiting()
            raise

    def release(self, size: int) -> None:
        """Release reserved capacity."""
        self._count -= 1
        assert self._count >= 0, self._count
        self._size -= size
        if self._queue:
            self._admit_waiting()

    def _has_capacity(self, size: int) -> bool:
        if self._count >= self._count_max:
            return False
        return self._size + size <= self._size_max or not self._count

    def _admit_waiting(self) -> None:
        queue = self._queue
        while queue and (queue[0][0].cancelled() or self._has_capacity(queue[0][1])):
            future, size = queue.popleft()
            if not future.cancelled():
                self._count += 1
                self._size += size
                future.set_result(None)
