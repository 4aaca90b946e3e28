"""A half message may ask not to be asked about for a while (CHECK_IMMUNITY_TIME_IN_SECONDS)."""

from __future__ import annotations

import re
from typing import Final

from escrowmq.base.message import Property, StoredMessage

IMMUNITY_MAX_MS: Final = 7 * 24 * 3_600_000
"""A longer wish for no checks is cut to this."""

_SECONDS: Final = re.compile(r"-?[0-9]{1,18}")


def is_past_immunity(half: StoredMessage, now_ms: int, timeout_ms: int) -> bool:
    """Whether a message that has such a wish is ended by the answer to a check alone by now. The
    age is by the store time: RocketMQ takes the producer's clock, which may be a day off."""
    if not half.properties.get(Property.CHECK_IMMUNITY_TIME):
        return False
    wish_ms = immunity_ms(half.properties) or 0
    return now_ms - half.stored_ms > max(wish_ms, timeout_ms)


def immunity_ms(properties: dict[str, str]) -> int | None:
    """How long a message does not want to be asked about; None when it has no such wish, or one
    that cannot be read (RocketMQ then takes its own time-out as well)."""
    text = properties.get(Property.CHECK_IMMUNITY_TIME)
    if text is None or not _SECONDS.fullmatch(text):
        return None
    seconds = int(text)
    return None if seconds < 0 else min(seconds * 1000, IMMUNITY_MAX_MS)
