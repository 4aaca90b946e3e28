"""The log from a place on, record by record, whatever topic they belong to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from escrowmq.base.message import StoredMessage
from escrowmq.codec.record import decode_record
from escrowmq.errors import CorruptRecord
from escrowmq.store.scan import LogScan, Scanned
from escrowmq.store.store import Store

_END_OF_LOG: Final = 1 << 62


def walk(
    store: Store, log_offset: int, wanted: Callable[[Scanned], bool] | None = None
) -> Iterator[StoredMessage]:
    """The whole records of the log from a place on, those that are wanted; what is damaged in
    between is passed over."""
    scan = LogScan(store.log.segments, durable_offset=_END_OF_LOG, checks_body=True)
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
