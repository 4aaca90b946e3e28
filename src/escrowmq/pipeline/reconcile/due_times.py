"""Computes when delayed messages of transactions are due."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from escrowmq.base.delay_levels import DELAY_LEVELS_S
from escrowmq.base.message import Property

EARLY_MS: Final = 2_000
"""How much too early, in ms, a message may be visible: a timer's tick, and as much again for the
difference of two clocks."""


def earliest_final_ms() -> Column:
    """The earliest time at which a half's final message may be visible; null without a valid delay.
    The delay is added to the half's store time, although it counts from the commit: the commit is
    never earlier."""
    stored_ms = F.unix_millis("storeTimestamp")
    return F.coalesce(
        _numeric_property(Property.TIMER_DELIVER_MS),
        stored_ms + _numeric_property(Property.TIMER_DELAY_MS),
        stored_ms + _numeric_property(Property.TIMER_DELAY_SEC) * 1_000,
        stored_ms + _level_ms(),
    )


def delayed_record_due_ms() -> Column:
    """When a record of a delay queue or of the timer is due."""
    return F.coalesce(
        _numeric_property(Property.TIMER_OUT_MS), F.unix_millis("storeTimestamp") + _level_ms()
    )


def _numeric_property(name: str) -> Column:
    return F.expr(f"try_cast(properties['{name}'] as bigint)")


def _level_ms() -> Column:
    spans = F.array(*[F.lit(span_s * 1_000).cast("bigint") for span_s in DELAY_LEVELS_S])
    wanted = _numeric_property(Property.DELAY)
    level = F.least(wanted, F.lit(len(DELAY_LEVELS_S))).cast("int")  # passes over null
    return F.when(wanted > 0, F.get(spans, level - 1))
