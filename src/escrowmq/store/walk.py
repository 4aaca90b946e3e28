"""Messages as they stand in the store: of the log from a place on, of a queue, of a key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from escrowmq.base.message import Property, StoredMessage
from escrowmq.codec.record import decode_record
from escrowmq.errors import CorruptRecord
from escrowmq.store.scan import LogScan, Scanned
from escrowmq.store.store import Store

_EVER_MS: Final = (1 << 62) - 1
_READ_COUNT: Final = 256
_SAME_KEY_MAX: Final = 64
"""Messages with one unique key that are looked at: one a resumption."""


def walk(
    store: Store, log_offset: int, wanted: Callable[[Scanned], bool] | None = None
) -> Iterator[StoredMessage]:
    """The whole records of the log from a place on, those that are wanted; what is damaged in
    between is passed over."""
    scan = LogScan(
        store.log.segments,
        has_crc=store.settings.appends_crc,
        leads_to=store.queues.proof(),
    )
    end_offset = store.end_offset
    for records in scan.batches(max(log_offset, store.min_log_offset)):
        for record in records:
            if record.log_offset >= end_offset:
                return
            if wanted is not None and not wanted(record):
                continue
            try:
                yield decode_record(store.log.read(record.log_offset, record.size))
            except CorruptRecord:
                continue


def walk_queue(
    store: Store, topic: str, queue_offset: int, end: int, *, queue_id: int = 0
) -> Iterator[StoredMessage]:
    """Messages of a topic's queue from an offset on, before another; those that cannot be read are
    passed over."""
    while entries := store.entries(
        topic, queue_id, queue_offset, min(_READ_COUNT, end - queue_offset)
    ):
        for log_offset, size, _ in entries:
            try:
                message = decode_record(store.read_record(log_offset, size))
            except CorruptRecord:
                continue
            yield message
        queue_offset += len(entries)


def with_unique_key(
    store: Store, topic: str, unique_key: str, *, begin_ms: int = 0
) -> list[StoredMessage]:
    """Messages of a topic with a unique key, stored at a time or later, the newest first."""
    found = store.query(
        topic, unique_key, count_max=_SAME_KEY_MAX, begin_ms=begin_ms, end_ms=_EVER_MS
    )
    messages = map(decode_record, found.records)
    return [m for m in messages if m.properties.get(Property.UNIQ_KEY) == unique_key]
