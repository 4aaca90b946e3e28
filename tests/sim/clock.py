"""A clock that jumps to the next event: hours pass in milliseconds, in one order; and the clocks of
machines, that go with it till somebody sets them."""

from __future__ import annotations

import heapq
from collections.abc import Callable

Action = Callable[[], None]


class SimClock:
    """Time, and what is to happen in it. Events of one moment keep the order of their making."""

    def __init__(self, start_ms: int) -> None:
        self._now_ms = start_ms
        self._events: list[tuple[int, int, Action]] = []
        self._made_count = 0
        self.events_count = 0

    def now_ms(self) -> int:
        """See base.ports.Clock."""
        return self._now_ms

    def at(self, when_ms: int, action: Action) -> None:
        """Have something happen at a time; at once when that is past."""
        self._made_count += 1
        heapq.heappush(self._events, (max(when_ms, self._now_ms), self._made_count, action))

    def after(self, delay_ms: int, action: Action) -> None:
        """Have something happen after a while."""
        self.at(self._now_ms + delay_ms, action)

    def run(self, until_ms: int) -> None:
        """Let everything happen up to a time."""
        events = self._events
        while events and events[0][0] <= until_ms:
            self._now_ms, _, action = heapq.heappop(events)
            self.events_count += 1
            action()
        self._now_ms = until_ms


class WallClock:
    """The clock on the wall of one machine, and what its processes make of it: set back, it goes
    on for them at its pace (net/clock.SystemClock); a process that starts believes it again."""

    def __init__(self, clock: SimClock) -> None:
        self._clock = clock
        self._ahead_ms = 0
        self._trusted_ms = 0
        self.has_gone_back = False
        """Whether a broker believed a clock that is behind its store."""

    def now_ms(self) -> int:
        """See base.ports.Clock."""
        return self._clock.now_ms() + self._trusted_ms

    def set(self, by_ms: int) -> int:
        """Somebody sets the clock on the wall, forward or back; how far the time of the machine's
        processes leaps ahead by that."""
        before_ms = self._trusted_ms
        self._ahead_ms += by_ms
        self._trusted_ms = max(self._trusted_ms, self._ahead_ms)
        return self._trusted_ms - before_ms

    def continue_from(self, time_ms: int) -> None:
        """See net/clock.SystemClock."""
        self._trusted_ms += max(0, time_ms - self.now_ms())

    def restart(self) -> None:
        """A process starts."""
        self._trusted_ms = self._ahead_ms
