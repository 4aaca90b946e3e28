"""Checks that were passed to a connection but may not have arrived.

A connection accepts writes for a while after the machine at its other end is gone. So a check
counts for good only when its client was heard from later: by an answer to it or to a later check,
or by a heartbeat. If the connection ends before that, the check is considered lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

UNHEARD_MAX: Final = 4_096
"""The most unconfirmed checks to remember for one connection. Older ones stay counted."""


class UnconfirmedChecks:
    """The checks that were sent on each connection since its client was last heard from."""

    def __init__(self) -> None:
        self.heard_ms: Callable[[int], int] = _never_heard
        """Returns the time of the last heartbeat on a connection."""
        self._of: dict[int, deque[tuple[int, int]]] = {}

    def note_sent(self, peer: int, queue_offset: int, now_ms: int) -> None:
        """Remember a check that was passed to a connection."""
        asked = self._of.get(peer)
        if asked is None:
            asked = self._of[peer] = deque(maxlen=UNHEARD_MAX)
        heard_ms = self.heard_ms(peer)
        while asked and asked[0][1] <= heard_ms:
            asked.popleft()
        asked.append((queue_offset, now_ms))

    def confirm(self, peer: int, queue_offset: int) -> None:
        """Confirm a check that was answered, and those sent before it on the connection."""
        asked = self._of.get(peer, ())
        count = next((n for n, (about, _) in enumerate(asked, 1) if about == queue_offset), 0)
        for _ in range(count):
            self._of[peer].popleft()

    def take_unconfirmed(self, peer: int) -> list[int]:
        """Forget a connection that has ended. Return the halves whose checks may not have
        arrived."""
        heard_ms = self.heard_ms(peer)
        asked = self._of.pop(peer, ())
        return [queue_offset for queue_offset, at_ms in asked if at_ms > heard_ms]

    def clock_leapt(self, by_ms: int) -> None:
        """Shift the times of checks by the clock's jump. The owner of the heartbeat times shifts
        those."""
        for peer, asked in self._of.items():
            shifted = [(queue_offset, at_ms + by_ms) for queue_offset, at_ms in asked]
            self._of[peer] = deque(shifted, maxlen=UNHEARD_MAX)


def _never_heard(peer: int) -> int:
    del peer
    return -1
