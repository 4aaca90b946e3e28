"""The log from a place on, record by record, whatever topic they belong to."""

from __future__ import annotations

from collections.abc import Iterator

from escrowmq.base.message import StoredMessage
from escrowmq.store.store import Store


def walk(store: Store, log_offset: int) -> Iterator[StoredMessage]:
    """The records of the log from a place on; where one is damaged, on from the next segment."""
    log_offset = max(log_offset, store.min_log_offset)
    segment_size = store.settings.log_segment_size
    while log_offset < store.end_offset:
        message = store.read(log_offset)
        if message is None:
            log_offset += segment_size - log_offset % segment_size
        else:
            yield message
            log_offset += message.record_size
