"""The levels of delayed messages, in the form of `messageDelayLevel`: `1s 5s 1m ...`."""

from __future__ import annotations

import re
from typing import Final

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_SPAN: Final = re.compile(r"[0-9]{1,9}[smhd]")


def are_delay_levels(text: str) -> bool:
    """Whether each word is a duration that `delay_levels` can parse."""
    return all(map(_SPAN.fullmatch, text.split()))


def delay_levels(text: str) -> dict[int, int]:
    """Durations in ms by level, from 1."""
    return {
        level: int(span[:-1]) * _SECONDS[span[-1]] * 1000
        for level, span in enumerate(text.split(), 1)
    }
