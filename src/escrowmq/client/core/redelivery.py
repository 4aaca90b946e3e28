"""When a failed message is redelivered."""

from __future__ import annotations

import bisect
import datetime as dt
from typing import Final

from escrowmq.errors import UsageError

LEVELS_S: Final = (
    1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200,
)  # fmt: skip
"""RocketMQ's delay levels 1 to 18, the brokers' default for messageDelayLevel."""

BROKER_DECIDES: Final = 0
"""The broker's own back-off: 10 s after the first failure, 30 s, 1 min, ... up to 2 h."""

NEVER: Final = -1
"""Move to the dead letters at once."""

ATTEMPTS_DEFAULT: Final = 16


def delay_level(after: dt.timedelta | float | None) -> int:
    """The level with the shortest delay not below `after`; None means the broker's back-off."""
    if after is None:
        return BROKER_DECIDES
    seconds: object = after.total_seconds() if isinstance(after, dt.timedelta) else after
    if not isinstance(seconds, int | float) or not 0 <= seconds <= LEVELS_S[-1]:
        raise UsageError(
            f"after={after!r}: a timedelta, or seconds from 0 to {LEVELS_S[-1]}, is expected"
        )
    return bisect.bisect_left(LEVELS_S, seconds) + 1
