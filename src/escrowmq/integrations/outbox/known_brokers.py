"""The brokers that a process has seen recorded in a database, so that it need not look again with
each transaction.

`forget_markers(gone=...)` declares a broker gone, also in another process. If a broker of that name
takes messages again, it must be recorded again. So a process looks again after a while, and
`expiry` keeps the markers made meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from escrowmq.net.clock import SystemClock

REREAD_MS: Final = 10 * 60_000
"""How long a process relies on a row that it has seen."""

SETTLED_MS: Final = 60_000
"""Only rows older than this are relied upon. A younger one may have been written in this
transaction by another outbox, and be rolled back with it."""

_forgotten_count = 0


def forget_known_brokers() -> None:
    """Make all outboxes of this process look for their brokers again, because a broker was declared
    gone."""
    global _forgotten_count
    _forgotten_count += 1


class KnownBrokers:
    """The brokers that one outbox has seen recorded."""

    def __init__(self, now_ms: Callable[[], int] | None = None) -> None:
        self._now_ms = now_ms or SystemClock().now_ms
        self._seen_ms: dict[str, int] = {}
        self._forgotten_count = _forgotten_count

    def names_to_look_up(self, names: Collection[str]) -> list[str]:
        """Return the brokers whose records must be looked up, sorted."""
        if self._forgotten_count != _forgotten_count:
            self._forgotten_count = _forgotten_count
            self._seen_ms = {}
        if not names:
            return []
        since_ms = self._now_ms() - REREAD_MS
        return sorted(name for name in names if self._seen_ms.get(name, since_ms) <= since_ms)

    def add(self, name: str) -> None:
        """Note that a broker's record was seen."""
        self._seen_ms[name] = self._now_ms()
