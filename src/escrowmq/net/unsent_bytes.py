"""What was written and has not left yet, of all connections together. Each has a bound of its own;
ten thousand connections that do not read, each below its bound, are the memory of the machine."""

from __future__ import annotations

from typing import Final, Protocol

from escrowmq.base.fixed_limits import UNSENT_SIZE_MAX

_GOAL_SHARE: Final = 0.75
"""So much of the bound is left once some were cut: the next write is no reason to look again."""


class Writer(Protocol):
    """A connection that is written to."""

    def unsent_size(self) -> int:
        """Bytes that have not left."""


class Unsent:
    """Adds up what waits, as it was when each connection was last written to."""

    def __init__(self, size_max: int = UNSENT_SIZE_MAX) -> None:
        self._size_max = size_max
        self._sizes: dict[Writer, int] = {}
        self.size = 0
        self.cut_count = 0

    def note(self, writer: Writer, size: int) -> list[Writer]:
        """So many bytes of a connection wait; who has to go, largest first, when they are too many
        in all."""
        self.size += size - self._sizes.get(writer, 0)
        self._sizes[writer] = size
        return self._excess() if self.size > self._size_max else []

    def forget(self, writer: Writer) -> None:
        """A connection is gone."""
        self.size -= self._sizes.pop(writer, 0)

    def _excess(self) -> list[Writer]:
        """Much of it has left meanwhile: look, and if that is not enough, choose."""
        sizes = {writer: size for writer in self._sizes if (size := writer.unsent_size())}
        self._sizes, self.size = sizes, sum(sizes.values())
        if self.size <= self._size_max:
            return []
        found = []
        for writer in sorted(sizes, key=sizes.__getitem__, reverse=True):
            if self.size <= self._size_max * _GOAL_SHARE:
                break
            found.append(writer)
            self.forget(writer)
        self.cut_count += len(found)
        return found
