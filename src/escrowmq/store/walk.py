"""Iterates over stored messages: of the log from an offset on, of a queue, or with a unique key."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from escrowmq.base.message import Property, StoredMessage
from escrowmq.codec.log_records import outline_records, record_fault
from escrowmq.codec.log_walker import LogWalker
from escrowmq.codec.record import decode_record
from escrowmq.codec.record_layout import SIZE
from escrowmq.errors import CorruptRecord
from escrowmq.store.store import Store

EVER_MS: Final = (1 << 62) - 1
"""The end of a search without a time limit. Record times may be in the future."""
_READ_COUNT: Final = 256
_SAME_KEY_MAX: Final = 64
"""The most messages with one unique key that are examined. Each resumption of a half stores one
more."""


def walk_log(store: Store, log_offset: int, *, kind: int | None = None) -> Iterator[StoredMessage]:
    """Yield the whole records of the log from an offset on, or only those of one transaction type.
    Damaged parts are skipped. Of records of other types, only the first bytes are read (0.4 us
    each)."""
    has_crc = store.settings.appends_crc
    walker = LogWalker(store.log.segments, has_crc=has_crc, leads_to=store.queues.unit_check())
    end_offset, start = store.end_offset, max(log_offset, store.min_log_offset)
    for base, data, found in walker.ranges(start, partial(outline_records, kind=kind)):
        for at in found.records:
            place, (size,) = base + at, SIZE.unpack_from(data, at)
            if place >= end_offset:
                return
            if record_fault(data[at : at + size], place, has_crc=has_crc) is not None:
                continue
            try:
                yield decode_record(data, at)
            except CorruptRecord:
                continue


def walk_queue(
    store: Store, topic: str, queue_offset: int, end: int, *, queue_id: int = 0
) -> Iterator[StoredMessage]:
    """Yield the messages of a topic's queue between two offsets. Unreadable ones are skipped."""
    while entries := store.read_units(
        topic, queue_id, queue_offset, min(_READ_COUNT, end - queue_offset)
    ):
        for log_offset, size, _ in entries:
            try:
                message = decode_record(store.read_record(log_offset, size))
            except CorruptRecord:
                continue
            yield message
        queue_offset += len(entries)


def find_by_unique_key(
    store: Store, topic: str, unique_key: str, *, after: int = -1
) -> list[StoredMessage]:
    """Return messages of a topic with a unique key, newest first, stored after a log offset. Store
    times do not matter, because clocks may be set back."""
    found = store.query(
        topic, unique_key, count_max=_SAME_KEY_MAX, begin_ms=0, end_ms=EVER_MS, after=after
    )
    messages = map(decode_record, found.records)
    return [m for m in messages if m.properties.get(Property.UNIQ_KEY) == unique_key]
