"""The interface of this room: put, read, and maintain the store.

A state machine over the Disk port: one thread calls it, and only `File.sync` runs elsewhere.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, tzinfo
from functools import partial
from typing import TYPE_CHECKING, Final

from escrowmq.base.effects import Sync
from escrowmq.base.fixed_limits import PROPERTIES_SIZE_MAX
from escrowmq.base.message import Message, StoredMessage
from escrowmq.base.ports import Disk
from escrowmq.base.store_settings import StoreSettings
from escrowmq.codec.crc import CRC_PROPERTY_SIZE
from escrowmq.codec.properties import encode_properties
from escrowmq.codec.record_layout import FILLER_SIZE
from escrowmq.codec.store_entries import ENTRY
from escrowmq.errors import CorruptRecord, DiskFull, StorageError
from escrowmq.store.batches import BatchWriter
from escrowmq.store.disk_watch import DiskWatch
from escrowmq.store.encoding import (
    check_message,
    check_sent_message,
    encode_pieces,
    record_size_max,
    too_large_result,
    with_final_separator,
)
from escrowmq.store.failed_syncs import SyncRepair
from escrowmq.store.flush import Flusher
from escrowmq.store.folder_check import refuse_unsupported
from escrowmq.store.queue_reading import QueueReader
from escrowmq.store.queue_snapshot import (
    empty_full_journal,
    remove_queues,
    save_boot,
    save_deletions,
    write_snapshot,
)
from escrowmq.store.record_run import RecordRun
from escrowmq.store.recovery import Recovery, RecoveryResult
from escrowmq.store.results import (
    Arrival,
    FoundByKey,
    GetResult,
    GetStatus,
    PutResult,
    PutStatus,
    RecoveryReport,
)
from escrowmq.store.retention import Retention, hour_function
from escrowmq.store.search import Searcher
from escrowmq.store.store_parts import StoreState

if TYPE_CHECKING:
    from escrowmq.store.copied_log import CopiedLog

__all__ = [
    "Arrival",
    "FoundByKey",
    "GetResult",
    "GetStatus",
    "PutResult",
    "PutStatus",
    "RecoveryReport",
    "Store",
]

ABORT, LOCK = "abort", "lock"
_log = logging.getLogger(__name__)
_OK: Final = PutStatus.OK
_BOOT_AGAIN_MS: Final = 1_000
"""The pause between attempts to record the boot on a full disk."""


class Store:
    """A store of messages in RocketMQ's files.

    `boot` names the machine's present boot, if known: a store whose process was killed within the
    same one has lost no write. `hour` gives the local hour of a time; by default from `zone`."""

    def __init__(
        self,
        disk: Disk,
        settings: StoreSettings,
        *,
        abort_text: str = "",
        boot: str = "",
        hour: Callable[[int], int] | None = None,
        zone: tzinfo = UTC,
    ) -> None:
        self.settings = settings
        self.disk = disk
        state = self._state = StoreState(disk, settings, boot=boot, zone=zone)
        self.log, self.queues, self.index = state.log, state.queues, state.index
        self.deleted, self.checkpoint = state.deleted, state.checkpoint
        self.dispatcher, self.ends = state.dispatcher, state.ends
        self.write_gate = state.write_gate
        self.reader = QueueReader(self.log, self.queues.by_key, settings)
        self.get = self.reader.get
        self.reply = self.reader.build_reply
        self.flusher = Flusher(state)
        self.mending = SyncRepair(
            state,
            take_round=self.flusher.restart_round,
            given_up=self._refuse_until_restart,
        )
        self.disk_watch = DiskWatch(state)
        self.retention = Retention(state, self.disk_watch, hour or hour_function(zone))
        self._searcher = Searcher(state)
        self._abort_text = abort_text
        self._is_open = False
        self._boot_due_ms = 0
        self.on_deleted: Callable[[str], None] | None = None
        """Called with each topic whose queues were removed."""
        self._appends_crc = settings.appends_crc
        self._properties_size_max = PROPERTIES_SIZE_MAX - (
            CRC_PROPERTY_SIZE + 1 if self._appends_crc else 0
        )
        body_max, properties_max = settings.body_size_max, self._properties_size_max
        self.judge = partial(
            check_sent_message, body_size_max=body_max, properties_size_max=properties_max
        )
        self.batches = BatchWriter(state, self.judge)
        self._by_key = self.queues.by_key
        self._held_back = self.dispatcher.held_back

    # -- life ---------------------------------------------------------------------------------

    def open(self, now_ms: int) -> RecoveryReport:
        """Lock, load and recover the store. Return what was found damaged, cut off or rebuilt.

        Raises StoreLocked when another process uses the folder; StorageError when the files do not
        match these settings, or are not a complete store of this kind.
        """
        assert not self._is_open, "open once"
        self.disk.lock(LOCK)
        refuse_unsupported(self.disk, boot=self._state.boot)
        try:
            found = Recovery(self._state).run(now_ms)
        except DiskFull as error:
            raise DiskFull(f"{error}; free space on the disk and start again") from error
        self._apply_recovery(found, now_ms)
        try:
            self.disk.replace(ABORT, self._abort_text.encode())
        except DiskFull as error:
            if self.disk.size(ABORT) is None:
                _log.warning("%s; the checkpoint records instead that the store is open", error)
                self._state.durability.note_open(is_open=True)
        self._is_open = True
        self.write_gate.lift_refusal()
        self.retention.start(now_ms)
        return found.report

    def _apply_recovery(self, found: RecoveryResult, now_ms: int) -> None:
        """Continue from the result of a recovery."""
        self.log.start(found.log_end)
        self.ends.start(found.log_end)
        self.dispatcher.start(found.log_end, found.stored_ms, found.stalled)
        self.reader.trust_from(found.trusted_from)
        self.log.raise_stored_ms(found.stored_ms)
        self.flusher.start(now_ms, stored_ms=self.log.stored_ms)

    def close(self, now_ms: int) -> None:
        """Make everything durable. Remove the abort file, unless a sync failed: then it stays, so
        that the next start reads the log."""
        if not self._is_open:
            return
        self._is_open = False
        try:
            is_whole = self.flusher.sync_everything(now_ms)
        finally:
            self.write_gate.refuse("the store is closed", is_lasting=True)
        self.log.remove_unused_segments()
        if is_whole:
            try:
                write_snapshot(self._state)
            except DiskFull as error:
                _log.warning("%s; the next start reads more of the log", error)
                is_whole = False
            else:
                self._state.durability.note_open(is_open=False)
        self.log.segments.close()
        self.queues.close()
        if self.index is not None:
            self.index.close()
        self.checkpoint.close()
        if is_whole:
            # Last of all: without it the next start believes that everything is durable.
            self.disk.remove(ABORT)

    def become_copy(self) -> CopiedLog:
        """Become a copy of another broker: from now on, only records of its log are appended."""
        from escrowmq.store.copied_log import CopiedLog

        self.write_gate.close_to_all("this broker is a slave: it stores what its master does")
        return CopiedLog(self._state, self.flusher.drop_collected_queues)

    # -- writing ------------------------------------------------------------------------------

    def put(
        self,
        message: Message,
        now_ms: int,
        *,
        properties: bytes | None = None,
        is_settling: bool = False,
    ) -> PutResult:
        """Append a message. `properties` are its properties in encoded form, if known. Settling
        puts may use reserved space on a full disk. Bodies have no limit except the segment's size:
        the limit for senders is checked before."""
        write_gate = self.write_gate
        if write_gate.refusal is not None and (write_gate.is_lasting or not is_settling):
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason=write_gate.refusal)
        if properties is None:
            properties = encode_properties(message.properties)
        elif properties[-1:] == b"\0":
            properties = with_final_separator(properties)
        # Prepared and rollback records belong to no queue.
        is_queued = not message.sys_flag & 4
        queue = self._by_key.get((message.topic, message.queue_id)) if is_queued else None
        size_max = self._properties_size_max
        if queue is None or len(properties) > size_max:
            refused = check_message(message, len(properties), properties_size_max=size_max)
            if refused is not None:
                return refused
            if is_queued:
                queue = self.queues.get_or_create(message.topic, message.queue_id)
        if self._held_back.units and not is_settling and (why := self._held_back.refusal(queue)):
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason=why)
        queue_offset = queue.next_offset if queue is not None else 0
        log, log_offset = self.log, self.log.end_offset
        now_ms = max(now_ms, log.stored_ms)
        try:
            (record,) = encode_pieces(
                message, ((message.flag, message.body, properties, message.properties),),
                queue_offset=queue_offset, log_offset=log_offset, has_crc=self._appends_crc,
                stored_ms=now_ms,
            )  # fmt: skip
            size = len(record)
            if size + FILLER_SIZE > log.segment_size - log_offset % log.segment_size:
                if size > log.record_size_max:
                    return too_large_result(size, log.record_size_max)
                log.roll(size, is_settling=is_settling)
                return self.put(message, now_ms, properties=properties, is_settling=is_settling)
            log.append(record, now_ms, is_settling=is_settling)
        except (StorageError, OSError, struct.error) as error:
            return write_gate.failed_put(error)
        self.dispatcher.make_visible(queue, message, queue_offset, log_offset, size)
        return PutResult(_OK, log_offset, queue_offset, size, now_ms, log_offset + size)

    def run_for(self, host: bytes) -> RecordRun:
        """Return a run for the messages of one input; `host` is their sender's address."""
        return RecordRun(self._state, host)

    def has_settling_space(self, messages: Sequence[Message]) -> bool:
        """Whether several settling messages all have space in the log and in their queues."""
        size = sum(map(record_size_max, messages))
        return self.log.reserve_settling_space(size) and self.queues.reserve_units(messages)

    # -- reading ------------------------------------------------------------------------------

    def read(self, log_offset: int) -> StoredMessage | None:
        """Return the queued message that starts at an untrusted log offset; None if none does."""
        return self._searcher.message_at(log_offset)

    def read_record(self, log_offset: int, size: int) -> bytes:
        """Return the record at a known offset and size. Raises CorruptRecord if unreadable."""
        record = self.reader.read_record(log_offset, size)
        if record is None:
            raise CorruptRecord(f"no complete record of {size} bytes at log offset {log_offset}")
        return record

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return a queue's first offset, and the offset that the next visible message gets."""
        queue = self._by_key.get((topic, queue_id))
        return (queue.min, queue.end) if queue is not None else (0, 0)

    def is_complete(self, topic: str, queue_id: int) -> bool:
        """Whether every record of a queue has its unit, and none waits for the disk."""
        queue = self._by_key.get((topic, queue_id))
        return queue is None or queue.end == queue.next_offset

    def read_units(
        self, topic: str, queue_id: int, queue_offset: int, count: int
    ) -> list[tuple[int, int, int]]:
        """Return units of a queue: log offset, record size, tags code."""
        queue = self._by_key.get((topic, queue_id))
        if queue is None or queue_offset < queue.min:
            return []
        return list(ENTRY.iter_unpack(queue.units(queue_offset, count)))

    def offset_at(self, topic: str, queue_id: int, time_ms: int, *, upper: bool = False) -> int:
        """Return the first queue offset stored at a time or later; the queue's end if there is
        none. With `upper`: the last one stored at that time or earlier; 0 if there is none."""
        queue = self._by_key.get((topic, queue_id))
        return self._searcher.offset_at(queue, time_ms, upper=upper) if queue is not None else 0

    def stored_ms_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the store time of the message at a queue offset; -1 when there is none."""
        queue = self._by_key.get((topic, queue_id))
        return self._searcher.stored_ms(queue, queue_offset) if queue is not None else -1

    def query(
        self, topic: str, key: str, *, count_max: int, begin_ms: int, end_ms: int, after: int = -1
    ) -> FoundByKey:
        """Return messages of a topic with a key (or unique key), stored within a span of time and
        after a log offset, newest first."""
        find = self._searcher.query
        return find(topic, key, count_max=count_max, begin_ms=begin_ms, end_ms=end_ms, after=after)

    def queues_of(self, topic: str) -> list[int]:
        """Return the queue ids of a topic that have or had messages."""
        return [queue.queue_id for queue in self.queues.queues_of(topic)]

    def topics(self) -> list[str]:
        """Return the topics that have a queue."""
        return self.queues.topics()

    def delete_topic(self, topic: str) -> int:
        """Remove a topic's queues. Return how many. Its records stay in the log until they
        expire."""
        doomed = self.queues.queues_of(topic)
        if not doomed:
            return 0
        self.flusher.drop_collected_queues()
        confirmed = self.ends.confirmed if self.ends.is_group_master else None
        log = self.log
        self.deleted.record_deletion(
            topic, log_end=log.end_offset, stored_ms=log.stored_ms, confirmed=confirmed
        )
        remove_queues(self._state, doomed)
        if self.on_deleted is not None:
            self.on_deleted(topic)
        return len(doomed)

    def deletion_fault(self) -> str:
        """Return why no topic can be deleted now: the file that records it cannot be written; else
        an empty text."""
        try:
            write_snapshot(self._state)
        except (StorageError, OSError) as error:
            return str(error)
        return ""

    @property
    def are_deletions_saved(self) -> bool:
        """Whether all deletions are saved; try to save them if not."""
        if not self.deleted.is_saved:
            save_deletions(self._state)
        return self.deleted.is_saved

    def remove_other_queues(self, live_topics: Iterable[str]) -> list[str]:
        """Remove the queues of all topics that are not live. Return those topics."""
        doomed = sorted(set(self.topics()) - set(live_topics))
        for topic in doomed:
            self.delete_topic(topic)
        return doomed

    def take_arrivals(self) -> list[Arrival]:
        """Return the messages that became visible, and clear them."""
        return self.dispatcher.take_arrivals()

    # -- making durable -----------------------------------------------------------------------

    def next_sync(self, now_ms: int) -> Sync | None:
        """Return the next sync to do; None if none is due, or one is running."""
        flusher = self.flusher
        if now_ms < flusher.quiet_until_ms:
            return None
        if flusher.failed is not None and not flusher.is_busy:
            return flusher.begin_sync(self.mending.next_sync())
        return flusher.next_sync(now_ms)

    def sync_finished(self, log_offset: int, now_ms: int) -> None:
        """Record that the requested sync has finished."""
        was_failed = self.flusher.failed is not None
        self.flusher.sync_finished(log_offset, now_ms)
        if was_failed and self._is_open:
            self.mending.sync_finished()
            self.write_gate.lift_refusal()
            _log.warning("what a failed sync may have lost is durable: messages are accepted again")

    def sync_failed(self, reason: str, now_ms: int) -> None:
        """Accept no messages until all that the failed sync may have lost is rewritten and synced
        (failed_syncs.py)."""
        is_news = self.flusher.failed is None
        self.flusher.sync_failed(reason)
        self.mending.sync_failed(now_ms)
        if is_news:
            again = "messages are accepted again once the disk has what it may have lost"
            _log.critical("read-only: a sync failed (%s); %s", reason, again)
            self.write_gate.refuse_after_disk_failure(f"a sync failed ({reason}); {again}")

    def _refuse_until_restart(self, reason: str) -> None:
        """Accept no messages until a restart, because lost data cannot be rewritten."""
        lost = f"a sync failed, and what it should have kept cannot be read back ({reason})"
        _log.critical("read-only until a restart, which reads the disk again: %s", lost)
        self.write_gate.refuse_after_disk_failure(f"{lost}; restart to read the disk again")

    def wake(self, now_ms: int) -> None:
        """Do the work that is due: stalled dispatch, clean-up, a check of the disk."""
        if not self._is_open:
            return
        self.dispatcher.wake(now_ms)
        if not self.deleted.is_saved:
            save_deletions(self._state)
        if not self._state.is_boot_saved and now_ms >= self._boot_due_ms:
            self._boot_due_ms = now_ms + _BOOT_AGAIN_MS
            save_boot(self._state)
        if self.queues.journal.is_full:
            empty_full_journal(self._state)
        self.mending.wake(now_ms)
        self.retention.wake(now_ms)

    def wake_at_ms(self) -> int:
        """The time to call `wake` and `next_sync` next."""
        if self.dispatcher.has_due_items:
            return 0
        flushes_ms, mends_ms = self.flusher.wake_at_ms(), self.mending.wake_at_ms()
        return min(self.retention.wake_at_ms(), flushes_ms, mends_ms, self._held_back.retry_at_ms)

    @property
    def durable_offset(self) -> int:
        """The log offset up to which the log is durable."""
        return self.ends.durable

    @property
    def irrevocable_offset(self) -> int:
        """The log offset before which nothing can be taken back. Data that depend on the log up to
        here may be saved."""
        return self.ends.irrevocable_end

    @property
    def end_offset(self) -> int:
        """The log offset of the next record."""
        return self.log.end_offset

    @property
    def min_log_offset(self) -> int:
        """The log offset at which the log begins."""
        return self.log.min_offset

    @property
    def oldest_stored_ms(self) -> int:
        """The store time of the oldest record; -1 when there is none."""
        return self._searcher.stored_ms_at(self.log.min_offset)

    @property
    def refusal(self) -> str | None:
        """Why ordinary puts are refused; None while they are accepted."""
        return self.write_gate.refusal

    @property
    def disk_fault(self) -> str:
        """Why the disk takes no messages, apart from other reasons to refuse them; empty if it
        takes them."""
        return self.write_gate.disk_fault or self.disk_watch.full

    @property
    def unseen_size(self) -> int:
        """The size of the log that consumers cannot see yet."""
        return self.dispatcher.unseen_size

    @property
    def disk_percent(self) -> int:
        """How full the disk was at the last check, in percent."""
        return self.disk_watch.percent

    @property
    def damaged_records(self) -> dict[int, str]:
        """Unreadable records that were requested: the reason, by log offset."""
        return self.reader.damaged

    @property
    def last_stored_ms(self) -> int:
        """The store time of the newest record."""
        return self.log.stored_ms

    def allow_earlier_times(self, now_ms: int) -> None:
        """Let the next records have this time, although earlier ones have a later time: the clock
        was wrong then. This is saved at once, because it decides which records a deletion of a
        topic covers."""
        self.deleted.note_earlier_times(self.log.stored_ms)
        save_deletions(self._state)
        self.log.allow_earlier_times(now_ms)
        # Otherwise the checkpoint would keep the wrong clock's times of queues and index. A start
        # would take such a time for damage, and read the whole log.
        dispatcher = self.dispatcher
        shown_ms = min(dispatcher.dispatched_ms, now_ms)  # lower if a full disk holds records back
        dispatcher.start(dispatcher.dispatched_offset, shown_ms, ())
        self.flusher.start(now_ms, stored_ms=now_ms)
