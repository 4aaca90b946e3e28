"""Finds connections on which something was incomplete for too long: a frame, a header block, a
message, or a stranger's call without a message. Receiving further bytes does not restart the
time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from escrowmq.base.fixed_limits import FRAME_TIME_MAX_MS

SCAN_MS: Final = 10_000
"""Interval of scans in milliseconds."""

IncompleteItem = tuple[int, int, int]
"""Identifies an incomplete item: its connection, and the pair that `incomplete_items` returns for
it."""


class WatchedConnection(Protocol):
    """A connection, as the search for incomplete items sees it."""

    def incomplete_items(self) -> list[tuple[int, int]]:
        """Return a pair for each incomplete item, which changes once the item is complete."""


class StallDetector:
    """Finds connections with an item that stays incomplete for too long. It remembers what was
    incomplete at the last scan, and since when."""

    def __init__(self) -> None:
        self._since_ms: dict[IncompleteItem, int] = {}
        self._scan_at_ms = 0

    def overdue_connections(
        self, connections: Iterable[tuple[int, WatchedConnection]], now_ms: int
    ) -> set[int]:
        """Return the connections that had an incomplete item for too long, counted from the scan
        that first found it."""
        if now_ms < self._scan_at_ms:
            return set()
        self._scan_at_ms = now_ms + SCAN_MS
        since_ms: dict[IncompleteItem, int] = {}
        found = set()
        for peer, talk in connections:
            for begun in talk.incomplete_items():
                name = (peer, *begun)
                since_ms[name] = self._since_ms.get(name, now_ms)
                if now_ms - since_ms[name] >= FRAME_TIME_MAX_MS:
                    found.add(peer)
        self._since_ms = since_ms
        return found

    def clock_leapt(self, by_ms: int) -> None:
        """Shift all times by a forward jump of the clock, so that nothing is overdue because of
        it."""
        self._since_ms = {begun: at_ms + by_ms for begun, at_ms in self._since_ms.items()}

    def wake_at_ms(self) -> int:
        """Return when the next scan is due."""
        return self._scan_at_ms
