"""Check immunity: a producer may ask that a half is not checked for a while
(CHECK_IMMUNITY_TIME_IN_SECONDS)."""

from __future__ import annotations

import re
from typing import Final

from escrowmq.base.fixed_limits import CHECK_IMMUNITY_MAX_S
from escrowmq.base.message import Property, StoredMessage

_SECONDS: Final = re.compile(r"-?[0-9]{1,18}")


def is_past_immunity(half: StoredMessage, now_ms: int, timeout_ms: int) -> bool:
    """Whether the immunity of a half is over, after which only the answer to a check can end it.
    Its age is counted from its store time: RocketMQ uses the producer's clock, which may be a day
    off."""
    wish_ms = immunity_ms(half.properties)
    least_ms = timeout_ms if wish_ms is None else max(wish_ms, timeout_ms)
    return now_ms - half.stored_ms > least_ms


def immunity_ms(properties: dict[str, str]) -> int | None:
    """Return the immunity that properties ask for; None if there is none, or it is invalid."""
    text = properties.get(Property.CHECK_IMMUNITY_TIME)
    if text is None or not _SECONDS.fullmatch(text):
        return None
    seconds = int(text)
    return None if seconds < 0 else min(seconds, CHECK_IMMUNITY_MAX_S) * 1000
