"""Where all connections read to, and how much of it one takes in a turn."""

from __future__ import annotations

from typing import Final

READ_SIZE: Final = 65_536
"""Bytes of one turn. A peer that sends more takes turns with the others."""

SHARE_SIZE_MIN: Final = 8_192
"""So much is read all the same when many send more than that."""


class Reads:
    """One place for all, since each takes its bytes out at once.

    Peers that are behind share a turn's bytes: what each of them takes is what everybody else waits
    for (benchmarks/transactions.py --only overload: ends beside eight that flood the broker)."""

    def __init__(self) -> None:
        self._all = memoryview(bytearray(READ_SIZE))
        self.room = self._all
        """For the next read, of whomever."""
        self.behind: set[int] = set()
        """Peers that have sent more than one turn takes."""

    def fall_behind(self, peer: int) -> None:
        """There may be more of what it has sent."""
        if peer not in self.behind:
            self.behind.add(peer)
            self._share()

    def catch_up(self, peer: int) -> None:
        """All of it was read, or it is gone."""
        if peer in self.behind:
            self.behind.discard(peer)
            self._share()

    def _share(self) -> None:
        size = READ_SIZE // max(1, len(self.behind))
        self.room = self._all[: max(size, SHARE_SIZE_MIN)]
