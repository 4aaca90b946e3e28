"""Recent events of transactions, to show them to operators."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

_EVENTS_MAX: Final = 20_000


class Event(NamedTuple):
    """One event in the life of a half message."""

    at_ms: int
    queue_offset: int
    what: str
    who: str = ""
    detail: str = ""


class RecentEvents:
    """The newest events of all transactions. Older events are only in the log."""

    def __init__(self, events_max: int = _EVENTS_MAX) -> None:
        self._events: deque[Event] = deque(maxlen=events_max)

    def add(
        self, at_ms: int, queue_offset: int, what: str, *, who: str = "", detail: str = ""
    ) -> None:
        """Record an event."""
        self._events.append(Event(at_ms, queue_offset, what, who, detail))

    def events_of(self, queue_offset: int) -> list[Event]:
        """Return the known events of one half, in order."""
        return [event for event in self._events if event.queue_offset == queue_offset]
