"""Differences between brokers' clocks and this machine's: times in their records are corrected by
them."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from escrowmq.errors import EscrowMQError

_log = logging.getLogger(__name__)

TOLERATED_MS: Final = 10_000
"""Smaller differences are ignored: brokers report their time in seconds, and the grace is
longer."""

_SPAN: Final = re.compile(r"\[ (\d+) days, (\d+) hours, (\d+) minutes, (\d+) seconds \]")


def broker_now_ms(runtime: Mapping[str, str]) -> int | None:
    """A broker's time, computed from its reported start time and uptime. RocketMQ's brokers
    (StoreStatsService) report the same."""
    began, span = runtime.get("bootTimestamp", ""), _SPAN.fullmatch(runtime.get("runtime", ""))
    if not began.isdecimal() or span is None:
        return None
    days, hours, minutes, seconds = map(int, span.groups())
    return int(began) + (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000


def look(
    brokers: Iterable[str],
    ask: Callable[[str], Mapping[str, str]],
    now_ms: Callable[[], int],
) -> dict[str, int]:
    """How many ms brokers' clocks are ahead; without those that are right, or that do not report
    it."""
    found = {}
    for broker in brokers:
        try:
            told_ms = broker_now_ms(ask(broker))
        except EscrowMQError as error:
            _log.warning("the clock of broker %s is assumed to be right: %s", broker, error)
            continue
        ahead_ms = 0 if told_ms is None else told_ms - now_ms()
        if abs(ahead_ms) > TOLERATED_MS:
            where = "ahead" if ahead_ms > 0 else "behind"
            _log.warning(
                "the clock of broker %s is %d s %s; its times are corrected by that",
                broker, abs(ahead_ms) // 1_000, where,
            )  # fmt: skip
            found[broker] = ahead_ms
    return found


def corrected(frame: DataFrame, ahead_ms: Mapping[str, int]) -> DataFrame:
    """Messages with `storeTimestamp` by this machine's clock."""
    if not ahead_ms:
        return frame
    shift: Column = F.lit(0).cast("bigint")
    for broker, span_ms in ahead_ms.items():
        shift = F.when(F.col("brokerName") == broker, F.lit(span_ms).cast("bigint")).otherwise(
            shift
        )
    stored = F.timestamp_millis(F.unix_millis("storeTimestamp") - shift)
    return frame.withColumn("storeTimestamp", stored)
