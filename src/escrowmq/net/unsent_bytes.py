"""Limits the unsent bytes of all connections together. Each has a limit of its own, but ten
thousand connections that do not read, each below its limit, would fill the machine's memory."""

from __future__ import annotations

from typing import Final, Protocol

from escrowmq.base.fixed_limits import UNSENT_SIZE_MAX

_GOAL_SHARE: Final = 0.75
"""The share of the limit that remains after connections were cut, so that the next write does not
cause another scan."""


class UnsentWriter(Protocol):
    """A connection that bytes are written to."""

    def unsent_size(self) -> int:
        """Return the bytes not sent yet."""


class UnsentBytes:
    """The sum of the unsent bytes of all connections, each as of its last write."""

    def __init__(self, size_max: int = UNSENT_SIZE_MAX) -> None:
        self._size_max = size_max
        self._sizes: dict[UnsentWriter, int] = {}
        self.size = 0
        self.cut_count = 0

    def record_size(self, writer: UnsentWriter, size: int) -> list[UnsentWriter]:
        """Record a connection's unsent bytes; return the connections to cut, largest first, if the
        sum is too large."""
        self.size += size - self._sizes.get(writer, 0)
        self._sizes[writer] = size
        return self._connections_to_cut() if self.size > self._size_max else []

    def forget_connection(self, writer: UnsentWriter) -> None:
        """Remove a connection that was closed."""
        self.size -= self._sizes.pop(writer, 0)

    def _connections_to_cut(self) -> list[UnsentWriter]:
        """Count all unsent bytes again, because many may have been sent meanwhile. Return the
        connections to cut if there are still too many."""
        sizes = {writer: size for writer in self._sizes if (size := writer.unsent_size())}
        self._sizes, self.size = sizes, sum(sizes.values())
        if self.size <= self._size_max:
            return []
        found = []
        for writer in sorted(sizes, key=sizes.__getitem__, reverse=True):
            if self.size <= self._size_max * _GOAL_SHARE:
                break
            found.append(writer)
            self.forget_connection(writer)
        self.cut_count += len(found)
        return found
