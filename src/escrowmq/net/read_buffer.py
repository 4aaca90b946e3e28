"""The shared read buffer of all connections, and the limit of one read."""

from __future__ import annotations

from typing import Final

READ_SIZE: Final = 65_536
"""Bytes that one peer may send per turn; a peer that sends more takes turns with the others."""

SHARE_SIZE_MIN: Final = 8_192
"""The fewest bytes that one peer may send per turn, however many peers have a backlog."""


class ReadBuffer:
    """The read buffer, which all connections share: each takes its bytes out of it immediately.

    Peers with a backlog share a turn's bytes, because all others wait during each one's turn
    (benchmarks/transactions.py --only overload: ends beside eight that flood the broker).
    """

    def __init__(self) -> None:
        self._all = memoryview(bytearray(READ_SIZE))
        self.next_buffer = self._all
        """The buffer for the next read of any connection."""
        self.backlogged: set[int] = set()
        """Peers that have sent more bytes than one turn reads."""

    def add_backlog(self, peer: int) -> None:
        """Note that there may be more bytes of this peer."""
        if peer not in self.backlogged:
            self.backlogged.add(peer)
            self._divide_buffer()

    def end_backlog(self, peer: int) -> None:
        """Note that all bytes of this peer were read, or that its connection is lost."""
        if peer in self.backlogged:
            self.backlogged.discard(peer)
            self._divide_buffer()

    def _divide_buffer(self) -> None:
        size = READ_SIZE // max(1, len(self.backlogged))
        self.next_buffer = self._all[: max(size, SHARE_SIZE_MIN)]
