"""When a failed message is redelivered."""

from __future__ import annotations

import bisect
import datetime as dt
from typing import Final

from escrowmq.base.delay_levels import DELAY_LEVELS_S
from escrowmq.errors import UsageError

BROKER_DECIDES: Final = 0
"""The delay level that leaves the back-off to the broker: 10 s after the first failure, then 30 s,
1 min, ... up to 2 h."""

NEVER: Final = -1
"""The delay level that moves a message to the dead letters immediately."""

ATTEMPTS_DEFAULT: Final = 16


def level_delay_s(level: int, default_s: float) -> float:
    """Return the delay of a level in seconds; the default if no level was requested."""
    return DELAY_LEVELS_S[level - 1] if level > 0 else default_s


def delay_level(after: dt.timedelta | float | None) -> int:
    """Return the level with the shortest delay not below `after`; None means the broker's
    back-off."""
    if after is None:
        return BROKER_DECIDES
    seconds: object = after.total_seconds() if isinstance(after, dt.timedelta) else after
    if not isinstance(seconds, int | float) or not 0 <= seconds <= DELAY_LEVELS_S[-1]:
        raise UsageError(
            f"after={after!r}: a timedelta, or seconds from 0 to {DELAY_LEVELS_S[-1]}, is expected"
        )
    return bisect.bisect_left(DELAY_LEVELS_S, seconds) + 1
