"""Limits the memory that the open calls of all connections use together.

If it is exceeded, a connection that uses more than nearly all others is closed, not the oldest one
as with incomplete frames (codec/frame): a call may stay open as long as its client likes, for
example a small call of a health probe."""

from __future__ import annotations

from typing import Protocol


class CallsConnection(Protocol):
    """A connection, as the limit on open calls sees it."""

    def drop_input(self, reason: str) -> None:
        """End all calls of the connection, and close it."""


class OpenCallsLimit:
    """The connections with open calls, and the memory that these use. Connections are grouped by
    the number of binary digits of their size, so that a large one is found without visiting all."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._sizes: dict[CallsConnection, int] = {}
        self._by_digits: dict[int, dict[CallsConnection, None]] = {}
        self.size = 0
        self.given_up_count = 0

    def set_size(self, holder: CallsConnection, size: int) -> None:
        """Set the present size of a connection's calls."""
        self.remove_connection(holder)
        if size:
            self.size += size
            self._sizes[holder] = size
            self._by_digits.setdefault(size.bit_length(), {})[holder] = None
        while self.size > self._size_max:
            largest, _ = self._by_digits[max(self._by_digits)].popitem()
            self._by_digits[self._sizes[largest].bit_length()][largest] = None
            size = self._sizes[largest]
            self.remove_connection(largest)
            self.given_up_count += 1
            largest.drop_input(
                f"the open calls of all strangers take more than {self._size_max} bytes, and those "
                f"of this connection {size}; end some, or prove who you are"
            )

    def remove_connection(self, holder: CallsConnection) -> None:
        """Remove a connection that has no more open calls."""
        size = self._sizes.pop(holder, 0)
        if size:
            self.size -= size
            digits = size.bit_length()
            group = self._by_digits[digits]
            del group[holder]
            if not group:
                del self._by_digits[digits]
