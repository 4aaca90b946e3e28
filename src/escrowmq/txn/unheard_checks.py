"""Checks that were handed to a connection and may never have arrived.

A connection takes what is written to it for a while after the machine at its other end is gone. So
a check counts for good when something was heard of its client later: its answer, that of a check
behind it, or a heartbeat. Where the connection ends before, it reached nobody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

UNHEARD_MAX: Final = 4_096
"""Checks kept in mind for one connection; of more the oldest stay counted."""


class Unheard:
    """What was asked on each connection since something was heard of it."""

    def __init__(self) -> None:
        self.heard_ms: Callable[[int], int] = _never
        """When the last heartbeat of a connection came."""
        self._of: dict[int, deque[tuple[int, int]]] = {}

    def asked(self, peer: int, queue_offset: int, now_ms: int) -> None:
        """A check that counts was handed to a connection."""
        asked = self._of.get(peer)
        if asked is None:
            asked = self._of[peer] = deque(maxlen=UNHEARD_MAX)
        heard_ms = self.heard_ms(peer)
        while asked and asked[0][1] <= heard_ms:
            asked.popleft()
        asked.append((queue_offset, now_ms))

    def answered(self, peer: int, queue_offset: int) -> None:
        """What was asked before this check has arrived as well."""
        asked = self._of.get(peer, ())
        count = next((n for n, (about, _) in enumerate(asked, 1) if about == queue_offset), 0)
        for _ in range(count):
            self._of[peer].popleft()

    def lost(self, peer: int) -> list[int]:
        """A connection has ended: the halves that it was asked about in vain."""
        heard_ms = self.heard_ms(peer)
        asked = self._of.pop(peer, ())
        return [queue_offset for queue_offset, at_ms in asked if at_ms > heard_ms]


def _never(peer: int) -> int:
    del peer
    return -1
