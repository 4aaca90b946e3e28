"""Corrects the times of messages from brokers whose clocks are wrong."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def with_corrected_times(frame: DataFrame, ahead_ms: Mapping[str, int]) -> DataFrame:
    """Return messages with `storeTimestamp` converted to this machine's clock."""
    if not ahead_ms:
        return frame
    shift: Column = F.lit(0).cast("bigint")
    for broker, span_ms in ahead_ms.items():
        shift = F.when(F.col("brokerName") == broker, F.lit(span_ms).cast("bigint")).otherwise(
            shift
        )
    stored = F.timestamp_millis(F.unix_millis("storeTimestamp") - shift)
    return frame.withColumn("storeTimestamp", stored)
