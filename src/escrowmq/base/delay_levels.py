"""The levels of delayed messages, in the form of `messageDelayLevel`: `1s 5s 1m ...`."""

from __future__ import annotations

import re
from typing import Final

DELAY_LEVELS_DEFAULT: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""RocketMQ's delays of the levels 1 to 18, the only ones that clients know."""

RETRY_FIRST_LEVEL: Final = 3
"""The delay level of a failed message's first redelivery: 10 s by default. Each further redelivery
has the next level."""

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_SPAN: Final = re.compile(r"[0-9]{1,9}[smhd]")


def is_valid_levels_text(text: str) -> bool:
    """Whether each word is a duration that `parse_delay_levels` can parse."""
    return all(map(_SPAN.fullmatch, text.split()))


def parse_delay_levels(text: str) -> dict[int, int]:
    """Parse durations; return them in ms by level, from 1."""
    return {
        level: int(span[:-1]) * _SECONDS[span[-1]] * 1000
        for level, span in enumerate(text.split(), 1)
    }


DELAY_LEVELS_S: Final = tuple(
    span_ms // 1000 for span_ms in parse_delay_levels(DELAY_LEVELS_DEFAULT).values()
)
"""The delays of RocketMQ's levels in seconds; the first is level 1."""
