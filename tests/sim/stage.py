"""What all actors of one simulated world share: clock, chance, and the record of what happened."""

from __future__ import annotations

import random
from collections import Counter, deque

from tests.sim.clock import SimClock

TRACE_LINES_MAX = 400


class Violation(AssertionError):
    """A promise of the broker was broken."""


class Stage:
    """Clock, chance and trace of one run. Nothing else may bring chance into it."""

    def __init__(self, seed: int, start_ms: int) -> None:
        self.clock = SimClock(start_ms)
        self.chance = random.Random(seed)
        self.start_ms = start_ms
        self.faults: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self._trace: deque[tuple[int, str, tuple[object, ...]]] = deque(maxlen=TRACE_LINES_MAX)
        self.is_calm = False
        """No more faults: what is left is to be settled now."""

    def note(self, text: str, *values: object) -> None:
        """Add a line to the trace; it is put together only when somebody reads it."""
        self._trace.append((self.clock.now_ms(), text, values))

    def fault(self, kind: str, text: str = "", *values: object) -> None:
        """Count a fault that was fired, and note it."""
        self.faults[kind] += 1
        self.note(f"FAULT {kind} {text}", *values)

    def happens(self, chance: float) -> bool:
        """Whether a fault of this probability is fired; never in the calm at the end."""
        return not self.is_calm and chance > 0 and self.chance.random() < chance

    def trace(self, lines_max: int = 120) -> str:
        """The newest lines, with times since the start."""
        lines = list(self._trace)[-lines_max:]
        return "\n".join(
            f"{(when_ms - self.start_ms) / 1000:10.3f}  {text % values if values else text}"
            for when_ms, text, values in lines
        )
