"""Automatic renewal: messages stay invisible while their consumer is connected, if it asked for
that.

Consumers need not request more time: when a message's invisible time is over, the broker checks
whether its consumer is still connected. The consumer's receipt stays valid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

STEP_MS: Final = 60_000
"""The interval of these checks, in ms. A message is redelivered at most this long after its
consumer has disconnected."""

SPAN_MAX_MS: Final = 10_800_000
"""After this time (three hours) a message is redelivered in any case, as by RocketMQ's proxy."""

IsConnected = Callable[[int], bool]
"""Returns whether a consumer, by its connection's number, is still connected."""

NOBODY: Final = 0


def never_renewed(_: int) -> bool:
    """Return False: for tables without renewal."""
    return False


def renewed_invisible_ms(pop_ms: int, now_ms: int) -> int:
    """Return the invisible time to set, counted from the pop; 0 if the maximum is reached."""
    passed_ms = now_ms - pop_ms
    if not 0 <= passed_ms < SPAN_MAX_MS:
        return 0
    return (passed_ms // STEP_MS + 1) * STEP_MS
