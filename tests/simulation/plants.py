"""Bugs to plant in a broker's store and tables (test_planted.py)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from escrowmq.base.effects import Sync
from escrowmq.base.message import StoredMessage
from escrowmq.broker.core import BrokerCore
from escrowmq.delivery.delay_progress import DelayedDeliverer
from escrowmq.errors import DiskFull, StorageError
from escrowmq.store.failed_syncs import log_files
from escrowmq.store.log_ends import LogEnds
from escrowmq.store.recovery import Recovery
from escrowmq.store.results import RecoveryReport
from escrowmq.store.store import PutResult


def answer_before_durable(core: BrokerCore) -> None:
    """SYNC_FLUSH, and the reply does not wait for the sync."""
    store = core.broker.store
    hasty = msgspec.structs.replace(store.settings, is_sync_flush=False)
    core.broker.answers._ends = LogEnds(store.log, hasty)


def later_sync_believed(core: BrokerCore) -> None:
    """What a failed sync was to keep counts as durable when the next one succeeds."""
    store = core.broker.store

    def spoilt(now_ms: int) -> Iterator[Sync]:
        log = store.log
        files = log_files(log.segments, store.durable_offset, log.end_offset)
        yield Sync(files + store.flusher.restart_round(now_ms), log.end_offset)

    store.mending._rewrite_all = spoilt  # type: ignore[method-assign]


def sync_of_a_start_believed(core: BrokerCore) -> None:
    """A start takes what it reads for what the disk has."""
    store = core.broker.store
    open_store, write_again = store.open, Recovery._write_again

    def spoilt(now_ms: int) -> RecoveryReport:
        Recovery._write_again = lambda self, end: None  # type: ignore[method-assign]
        try:
            return open_store(now_ms)
        finally:
            Recovery._write_again = write_again  # type: ignore[method-assign]

    store.open = spoilt  # type: ignore[method-assign]


def deletion_not_noted(core: BrokerCore) -> None:
    """A start that reads the log brings deleted topics back."""
    core.broker.store.deleted.record_deletion = lambda topic, **_: None  # type: ignore[method-assign]


def shortage_taken_for_loss(core: BrokerCore) -> None:
    """Where no file can be opened the store takes nothing any more until it is restarted."""
    write_gate = core.broker.store.write_gate
    failed = write_gate.failed_put

    def spoilt(error: Exception) -> PutResult:
        if not isinstance(error, DiskFull):
            write_gate.refuse(str(error), is_lasting=True)
        return failed(error)

    write_gate.failed_put = spoilt  # type: ignore[method-assign]


def unopened_is_gone(core: BrokerCore) -> None:
    """A delayed message in a file that cannot be opened just now is passed over."""
    for courier in (core.broker.delays.deliverer, core.broker.timer.deliverer):

        def spoilt(
            log_offset: int,
            size: int,
            *,
            courier: DelayedDeliverer = courier,
            read: Any = courier.read_record,
        ) -> StoredMessage | None:
            try:
                found: StoredMessage | None = read(log_offset, size)
            except (StorageError, OSError) as error:
                courier.skip_record(log_offset, str(error))
                return None
            return found

        courier.read_record = spoilt  # type: ignore[method-assign]


def delayed_deleted_with_its_segment(core: BrokerCore) -> None:
    """Clean-up carries halves forward, and asks nobody who waits to be delivered."""
    core.broker.store.retention.keeper = core.transactions.carrier.carry


def deleted_before_its_copy_is_durable(core: BrokerCore) -> None:
    """A segment goes as soon as nothing needs it, whatever a loss of power would take."""
    core.broker.store.retention._deletable_segments = lambda free, now_ms: free  # type: ignore[method-assign]


def kept_in_a_queue_that_is_gone(core: BrokerCore) -> None:
    """A message is delivered to the queue that its half was meant for, read or not."""

    def spoilt(name: str, queue_id: int) -> int:
        del name
        return queue_id

    core.broker.topics.readable_queue = spoilt  # type: ignore[method-assign]


def ahead_for_ever(core: BrokerCore) -> None:
    """A clock that was days ahead once stamps all records from then on."""
    core.broker.store.allow_earlier_times = lambda now_ms: None  # type: ignore[method-assign]


def tables_told_before_they_are_kept(core: BrokerCore) -> None:
    """Whoever makes a topic wider is answered, and nobody has written it down."""
    core._tables.save = lambda: None  # type: ignore[method-assign]
