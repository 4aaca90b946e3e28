"""What the open calls of many connections take, bounded in sum.

Beyond, a connection that has more than nearly all others is given up, not the oldest one, as with
frames that are half there (codec/frame): a call may stay open for as long as its client likes, as
that of a probe that watches the server's health does, which is small.
"""

from __future__ import annotations

from typing import Protocol


class Holder(Protocol):
    """Whose calls they are."""

    def give_up(self, reason: str) -> None:
        """End all of them, and the connection."""


class OpenCalls:
    """All connections that have any, by the number of binary digits of their size: the largest is
    found without going through them."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._sizes: dict[Holder, int] = {}
        self._by_digits: dict[int, dict[Holder, None]] = {}
        self.size = 0
        self.given_up_count = 0

    def hold(self, holder: Holder, size: int) -> None:
        """A connection's calls take so much now."""
        self.free(holder)
        if size:
            self.size += size
            self._sizes[holder] = size
            self._by_digits.setdefault(size.bit_length(), {})[holder] = None
        while self.size > self._size_max:
            largest, _ = self._by_digits[max(self._by_digits)].popitem()
            self._by_digits[self._sizes[largest].bit_length()][largest] = None
            size = self._sizes[largest]
            self.free(largest)
            self.given_up_count += 1
            largest.give_up(
                f"the open calls of all strangers take more than {self._size_max} bytes, and those "
                f"of this connection {size}; end some, or prove who you are"
            )

    def free(self, holder: Holder) -> None:
        """A connection has none any more."""
        size = self._sizes.pop(holder, 0)
        if size:
            self.size -= size
            digits = size.bit_length()
            group = self._by_digits[digits]
            del group[holder]
            if not group:
                del self._by_digits[digits]
