"""Filters halves for operators' queries about pending or discarded transactions."""

from __future__ import annotations

from escrowmq.base.message import Property, StoredMessage
from escrowmq.base.own_properties import TRANSACTION
from escrowmq.codec.pending_bodies import HalfFilter


def is_wanted_half(half: StoredMessage, wanted: HalfFilter) -> bool:
    """Whether a half matches the filter, except for its age."""
    properties = half.properties
    return (
        wanted.topic in (None, properties.get(Property.REAL_TOPIC))
        and wanted.group in (None, properties.get(Property.PGROUP))
        and wanted.transaction in (None, properties.get(TRANSACTION))
    )
