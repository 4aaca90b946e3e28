"""Automatic renewal: messages stay hidden while their consumer is connected and wants them to.

Consumers need not ask for more time: when a message's time is over, the broker looks whether its
consumer still holds it. The consumer's receipt stays valid meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

STEP_MS: Final = 60_000
"""Interval of these looks; at the latest this long after its consumer is gone a message is
redelivered."""

SPAN_MAX_MS: Final = 10_800_000
"""After three hours a message is redelivered in any case, as by RocketMQ's proxy."""

IsThere = Callable[[int], bool]
"""Whether a holder, by its number, is still connected."""

NOBODY: Final = 0


def never_renewed(_: int) -> bool:
    """For tables without renewal."""
    return False


def span_ms(pop_ms: int, now_ms: int) -> int:
    """How long since its pop a message is hidden by now; 0 if the maximum is reached."""
    passed_ms = now_ms - pop_ms
    if not 0 <= passed_ms < SPAN_MAX_MS:
        return 0
    return (passed_ms // STEP_MS + 1) * STEP_MS
