"""Which halves match an operator's query about pending or discarded transactions."""

from __future__ import annotations

from escrowmq.base.message import Property, StoredMessage
from escrowmq.base.own_properties import TRANSACTION
from escrowmq.codec.pending_bodies import Filter
from escrowmq.txn.pending import PendingRow


def is_wanted_row(row: PendingRow, wanted: Filter, now_ms: int) -> bool:
    """Whether a pending half may match, without reading the log."""
    age_ms = now_ms - row.stored_ms
    return (
        wanted.topic in (None, row.topic)
        and wanted.group in (None, row.group)
        and age_ms >= (wanted.min_age_ms or 0)
        and (wanted.max_age_ms is None or age_ms <= wanted.max_age_ms)
    )


def is_wanted_half(half: StoredMessage, wanted: Filter) -> bool:
    """Whether a half matches according to its record; of any age."""
    properties = half.properties
    return (
        wanted.topic in (None, properties.get(Property.REAL_TOPIC))
        and wanted.group in (None, properties.get(Property.PGROUP))
        and wanted.transaction in (None, properties.get(TRANSACTION))
    )
