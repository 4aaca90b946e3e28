"""Finds connections on which something has begun and does not end: a frame, a block of header
fields, a message; a stranger's call that asks nothing. Bytes that trickle in meanwhile do not
count."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from escrowmq.base.fixed_limits import FRAME_TIME_MAX_MS

SCAN_MS: Final = 10_000
"""Between looks."""

Begun = tuple[int, int, int]
"""A connection, and what has begun there."""


class Talk(Protocol):
    """A connection, as far as it matters here."""

    def halves(self) -> list[tuple[int, int]]:
        """What has begun on it and is not whole yet."""


class StallWatch:
    """What was half there at the last look, and since when."""

    def __init__(self) -> None:
        self._since_ms: dict[Begun, int] = {}
        self._scan_at_ms = 0

    def overdue(self, connections: Iterable[tuple[int, Talk]], now_ms: int) -> set[int]:
        """The connections on which something has been half there for too long. What is found at
        one look counts from then on."""
        if now_ms < self._scan_at_ms:
            return set()
        self._scan_at_ms = now_ms + SCAN_MS
        since_ms: dict[Begun, int] = {}
        found = set()
        for peer, talk in connections:
            for begun in talk.halves():
                name = (peer, *begun)
                since_ms[name] = self._since_ms.get(name, now_ms)
                if now_ms - since_ms[name] >= FRAME_TIME_MAX_MS:
                    found.add(peer)
        self._since_ms = since_ms
        return found

    def wake_at_ms(self) -> int:
        """When the next look is due."""
        return self._scan_at_ms
