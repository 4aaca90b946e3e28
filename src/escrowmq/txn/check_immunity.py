"""Check immunity: a half message may request no checks for a while
(CHECK_IMMUNITY_TIME_IN_SECONDS)."""

from __future__ import annotations

import re
from typing import Final

from escrowmq.base.message import Property, StoredMessage

IMMUNITY_MAX_MS: Final = 7 * 24 * 3_600_000
"""A longer immunity is cut to this."""

_SECONDS: Final = re.compile(r"-?[0-9]{1,18}")


def is_past_immunity(half: StoredMessage, now_ms: int, timeout_ms: int) -> bool:
    """Whether a message with immunity can by now be ended only by the answer to a check. Its age is
    by the store time: RocketMQ uses the producer's clock, which may be a day off."""
    wish_ms = immunity_ms(half.properties)
    least_ms = timeout_ms if wish_ms is None else max(wish_ms, timeout_ms)
    return now_ms - half.stored_ms > least_ms


def immunity_ms(properties: dict[str, str]) -> int | None:
    """A message's immunity; None without one, or if it is invalid (RocketMQ then uses its own
    timeout as well)."""
    text = properties.get(Property.CHECK_IMMUNITY_TIME)
    if text is None or not _SECONDS.fullmatch(text):
        return None
    seconds = int(text)
    return None if seconds < 0 else min(seconds * 1000, IMMUNITY_MAX_MS)
