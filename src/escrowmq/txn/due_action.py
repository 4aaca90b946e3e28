"""Decides what to do with a pending transaction that is due."""

from __future__ import annotations

import enum


class DueAction(enum.Enum):
    """What to do with a pending transaction that is due."""

    ASK = enum.auto()
    PARK = enum.auto()
    EXPIRE = enum.auto()


def choose_action(
    *, checks: int, checks_max: int, age_ms: int, age_max_ms: int, is_reachable: bool
) -> DueAction:
    """Decide what to do with a pending transaction that is due."""
    if checks >= checks_max or age_ms > age_max_ms:
        return DueAction.EXPIRE
    return DueAction.ASK if is_reachable else DueAction.PARK
