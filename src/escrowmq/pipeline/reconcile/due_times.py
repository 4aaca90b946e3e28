"""Computes when delayed messages of transactions are due.

Senders choose the properties that say it. So numbers are clamped: an overflow would end the job."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from escrowmq.base.delay_levels import DELAY_LEVELS_S
from escrowmq.base.message import Property

EARLY_MS: Final = 2_000
"""How much too early, in ms, a message may be visible: a timer's tick, and as much again for the
difference of two clocks."""


_FAR_MS: Final = 100_000_000_000_000
"""Limit of times and delays in ms: the year 5138. No broker lets a message wait for so long."""


def earliest_final_ms() -> Column:
    """The earliest time at which a half's final message may be visible; null without a valid delay.
    The delay is added to the half's store time, although it counts from the commit: the commit is
    never earlier. If there are several, the one counts that counts for brokers
    (`delivery/delayed_messages`)."""
    stored_ms = F.unix_millis("storeTimestamp")
    return F.coalesce(
        stored_ms + _level_ms(),
        stored_ms + _clamped(Property.TIMER_DELAY_SEC, _FAR_MS // 1_000) * 1_000,
        stored_ms + _clamped(Property.TIMER_DELAY_MS, _FAR_MS),
        _clamped(Property.TIMER_DELIVER_MS, _FAR_MS),
    )


def delayed_record_due_ms() -> Column:
    """When a record of a delay queue or of the timer is due."""
    return F.coalesce(
        _clamped(Property.TIMER_OUT_MS, _FAR_MS), F.unix_millis("storeTimestamp") + _level_ms()
    )


def _numeric_property(name: str) -> Column:
    return F.expr(f"try_cast(properties['{name}'] as bigint)")


def _clamped(name: str, most: int) -> Column:
    number = _numeric_property(name)
    # Of null and a number, `greatest` would return the number.
    return F.when(number.isNotNull(), F.greatest(F.least(number, F.lit(most)), F.lit(-most)))


def _level_ms() -> Column:
    spans = F.array(*[F.lit(span_s * 1_000).cast("bigint") for span_s in DELAY_LEVELS_S])
    wanted = _numeric_property(Property.DELAY)
    level = F.least(wanted, F.lit(len(DELAY_LEVELS_S))).cast("int")  # passes over null
    return F.when(wanted > 0, F.get(spans, level - 1))
