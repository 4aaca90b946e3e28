"""Messages that are hidden for as long as their consumer is there, and wants them to be.

Nobody has to remember to ask for more time: when the time of a message is over, it is looked
whether its consumer still holds it. The receipt that the consumer has stays good meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

STEP_MS: Final = 60_000
"""Between two looks; so long after its consumer is gone a message comes again at the latest."""

SPAN_MAX_MS: Final = 10_800_000
"""After three hours a message comes again all the same, as at RocketMQ's proxy."""

IsThere = Callable[[int], bool]
"""Whether a holder, by its number, is there still."""

NOBODY: Final = 0


def nobody_is_there(_: int) -> bool:
    """For tables that are not told who is."""
    return False


def span_ms(pop_ms: int, now_ms: int) -> int:
    """For how long since its pop a message is to be hidden now; 0 when it has been for too long."""
    passed_ms = now_ms - pop_ms
    if not 0 <= passed_ms < SPAN_MAX_MS:
        return 0
    return (passed_ms // STEP_MS + 1) * STEP_MS
