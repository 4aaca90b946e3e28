"""Opens a store: finds the end of the log, and makes queues and index agree with it.

How much of the log is read depends on the last stop. After a clean stop: only what follows the
newest unit. After a kill within the same boot of the machine: also what the checkpoint does not
call durable. After any other end: from an offset on that was durable everywhere, by the checkpoint.
If the queues turn out to lack units before that offset, the whole log is read.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple

from escrowmq.codec.log_records import ScannedRecord, record_fault
from escrowmq.codec.log_walker import LogDamage, LogWalker, claimed_record_end
from escrowmq.codec.record_layout import PROPERTIES_SIZE
from escrowmq.errors import CorruptRecord, DiskFull
from escrowmq.store import queue_snapshot as snapshots
from escrowmq.store.consume_queue import ConsumeQueue
from escrowmq.store.failed_syncs import (
    maybe_unsynced_from,
    newest_durable_segment,
    rewrite_derived,
    rewrite_log,
)
from escrowmq.store.queue_snapshot import (
    Snapshot,
    lost_queues,
    read_snapshot,
    without_queues,
    write_snapshot,
)
from escrowmq.store.rebuild import MissingUnitsError, QueuesRebuild
from escrowmq.store.results import RecoveryReport
from escrowmq.store.scanned import RecordKeys
from escrowmq.store.store_parts import StoreState
from escrowmq.store.unseen import UnseenRecord

ABORT: Final = "abort"
_NOTES_MAX: Final = 100
_MARGIN_MS: Final = 3_000
_AHEAD_MS_MAX: Final = 366 * 86_400_000
_END_OF_TIME: Final = 1 << 62
_LAST_SIZE: Final = PROPERTIES_SIZE.size + 1
"""The size of a record's last bytes that are never all zeros: of its topic's last letter, and the
properties' size, which is 0."""


class RecoveryResult(NamedTuple):
    """The result of a recovery."""

    report: RecoveryReport
    log_end: int
    """The log offset at which to append."""
    stored_ms: int
    """The time of the newest record; 0 when there is none."""
    trusted_from: int
    """The log offset from which on all records were read and verified."""
    stalled: list[UnseenRecord]
    """Records that have no unit because the disk is full."""


class Recovery:
    """Runs one recovery of a store."""

    def __init__(self, state: StoreState) -> None:
        self._state = state
        self._log = state.log
        self._report = RecoveryReport()
        self._rebuild = QueuesRebuild(state, is_whole=False, was_clean=False)
        self._keys = RecordKeys()
        self._snapshot: Snapshot | None = None
        self._is_same_boot = False
        self._is_of_rocketmq = state.queues.topics_of_rocketmq is not None
        self._led_to = 0
        """The end of the newest record that has a unit."""

    def run(self, now_ms: int) -> RecoveryResult:
        """Load all files of the store, and make them agree."""
        state, report = self._state, self._report
        report.notes += state.checkpoint.load(now_ms)
        is_open = state.durability.checkpoint.is_open
        report.was_clean = state.disk.size(ABORT) is None and not is_open
        self._snapshot = read_snapshot(state.disk)
        self._is_same_boot = bool(state.boot) and (
            self._snapshot is not None and self._snapshot.boot == state.boot
        )
        report.notes += self._log.segments.load()
        self._remove_leftover_segments()
        report.notes += state.queues.load()
        if not self._log.segments.starts:
            self._remove_queues_without_log()
        # Before any queue is judged: units of a deleted topic lead to records that do not count.
        self._remove_deleted_topics(now_ms)
        if state.index is not None:
            report.notes += state.index.load()
        if self._is_same_boot and not report.was_clean:
            self._is_same_boot = self._has_all_written()
        if state.index is not None:
            self._check_index()
        start = self._scan_start()
        self._check_last_units(start)
        self._led_to = self._newest_unit_end()
        start = min(start, self._suspect_start())
        assert start >= self._log.min_offset, (start, self._log.min_offset)
        try:
            scan, end = self._scan(start)
            if not scan.records_count and self._log.min_offset < start < self._log.segments.end:
                raise MissingUnitsError(f"there is no record at {start}")
        except MissingUnitsError as hole:
            report.notes.append(f"{hole}; the whole log is read")
            # From the beginning on, nothing can be missing before: this scan finds no hole.
            start = self._log.min_offset
            scan, end = self._scan(start)
        report.damaged = self._rebuild.damaged
        self._finish(scan, end)
        self._sync(start, end)
        newest_ms = scan.stored_ms or state.durability.checkpoint.log_ms
        # The scan has verified everything from its start on.
        is_checked = state.settings.checks_crc_on_recovery and not report.damaged
        return RecoveryResult(
            report,
            end,
            # A time far in the future is damage; later records must not continue from it.
            newest_ms if newest_ms < now_ms + _AHEAD_MS_MAX else now_ms,
            start if is_checked else end,
            self._rebuild.stalled,
        )

    def _has_all_written(self) -> bool:
        """Whether all units and entries that the previous process wrote exist. The kernel may have
        dropped those that it could not write to the disk."""
        state = self._state
        try:
            for _ in rewrite_derived(state, maybe_unsynced_from(state)):
                pass
        except CorruptRecord as error:
            self._report.notes.append(f"some of the last writes are missing: {error}")
            return False
        return True

    def _remove_deleted_topics(self, now_ms: int) -> None:
        """Load the deletions of topics, and remove remains of the queues of deleted topics."""
        state = self._state
        if self._snapshot is not None:
            state.deleted.load(self._snapshot.deleted, self._snapshot.latest_ms)
            if self._is_of_rocketmq:
                self._snapshot = without_queues(state, self._snapshot, now_ms)
        for queue in list(state.queues):
            deletion = state.deleted.of_topic.get(queue.topic)
            if deletion is not None and queue.remove_stale_files(deletion.log_end):
                name = f"{queue.topic}/{queue.queue_id}"
                self._report.notes.append(f"queue {name} was deleted before")
                if not queue.files.starts:
                    queue.remove()
                    if not queue.is_suspect:
                        del state.queues.by_key[queue.topic, queue.queue_id]

    def _remove_leftover_segments(self) -> None:
        """Delete the segments before a hole that an interrupted deletion has left. Any other hole
        is damage, and everything before it is kept."""
        segments = self._log.segments
        begin = self._snapshot.log_begin if self._snapshot is not None else 0
        starts = segments.starts
        for before, behind in pairwise(starts):
            if before + segments.segment_size < behind <= begin:
                for start in starts[: starts.index(behind)]:
                    if segments.has(start):
                        segments.remove(start)
                        self._report.notes.append(f"{segments.path(start)} was deleted before")

    def _remove_queues_without_log(self) -> None:
        """Remove the queues of a log that has no file after a power failure: nothing of it was
        durable. Otherwise the next start would look for a missing log (store/folder_check)."""
        for queue in self._state.queues.remove_all():
            name = f"{queue.topic}/{queue.queue_id}"
            self._report.notes.append(f"queue {name} led to what was never durable")

    def _find_append_offset(self, scan: LogWalker) -> int:
        """Return where to append: after the last whole record, or after unreadable data that
        existed once. Acknowledged messages are never overwritten."""
        end = scan.end_offset
        once = self._former_end(end)
        if once <= end:
            return end
        # RocketMQ's mark may be past the end of its log.
        self._report.is_short = self._snapshot is not None
        if not self._has_data_before(once, end):
            return end
        self._rebuild.damaged.append(LogDamage(end, once - end, scan.cut_reason))
        return once

    def _former_end(self, end: int) -> int:
        """Return where the log ended before the last stop, as far as that is known; else 0."""
        marked = self._state.durability.checkpoint.confirmed_offset
        if self._report.was_clean or not self._is_same_boot:
            return marked if self._report.was_clean else 0
        # The kernel has all that was written, and in that order: a record, then its unit.
        # A damaged unit may lead to an offset without data.
        led_to = self._led_to if self._has_data_before(self._led_to, end) else 0
        return max(marked, self._written_record_end(end), led_to)

    def _newest_unit_end(self) -> int:
        """Return the end of the newest record that has a unit."""
        units = [queue.unit(queue.end - 1) for queue in self._state.queues]
        return max((unit[0] + unit[1] for unit in units if unit is not None), default=0)

    def _written_record_end(self, position: int) -> int:
        """Return the end of the record that begins at a position, if it was written completely;
        else 0."""
        end = claimed_record_end(self._log.segments, position)
        return end if end is not None and self._has_data_before(end, position) else 0

    def _has_data_before(self, end: int, begin: int) -> bool:
        last = max(begin, end - _LAST_SIZE)
        return last < end and any(self._log.segments.read(last, end - last))

    # -- where to begin -----------------------------------------------------------------------

    def _check_index(self) -> None:
        """Remove index files that cannot be trusted. The scan rebuilds them."""
        index = self._state.index
        assert index is not None
        young_ms = self._state.durability.checkpoint.index_ms - _MARGIN_MS
        for file in list(index.files):
            is_last = file is index.files[-1]
            problem = None
            if file.count > 1 and file.end_log_offset >= self._log.segments.end:
                problem = "it leads past the end of the log"
            elif not self._report.was_clean and (is_last or file.end_ms >= young_ms):
                problem = file.find_problem(is_last=is_last, is_thorough=not self._is_same_boot)
            if problem is not None:
                self._report.index_rebuilt.append(f"{file.path}: {problem}")
                index.drop_from(file)
                return

    def _scan_start(self) -> int:
        """Return the latest log offset at which the scan may begin and still find everything that
        queues and index may lack."""
        state = self._state
        low = self._log.min_offset
        snapshot, lost = self._snapshot, self._missing_units_reason()
        if lost:
            self._report.notes.append(f"{lost}; the whole log is read")
            return low
        has_all_writes = self._report.was_clean or self._is_same_boot
        if has_all_writes:
            # Units are written in the log's order: whatever came before the newest has its own,
            # unless the checkpoint says otherwise.
            start = max((self._last_log_offset(queue) for queue in state.queues), default=low)
            if not self._report.was_clean:
                start = min(start, state.durability.checkpoint.confirmed_offset)
        else:
            start = newest_durable_segment(state)
        start = min(start, self._first_lost_offset())
        if state.durability.checkpoint.unseen_from >= 0:
            start = min(start, state.durability.checkpoint.unseen_from)
        index = state.index
        if index is None or not self._log.segments.starts:
            return max(start, low)
        is_known = snapshot is not None and index.end_log_offset >= snapshot.index_end
        if is_known and self._report.was_clean:
            return max(start, low)
        if not index.files and (snapshot is None or snapshot.index_end >= 0):
            if any(queue.end for queue in state.queues):
                self._report.index_rebuilt.append("it has no file")
            return low
        if self._report.index_rebuilt or not is_known or state.durability.checkpoint.index_ms == 0:
            start = min(start, index.end_log_offset)
        elif has_all_writes:
            start = min(start, max(index.end_log_offset, newest_durable_segment(state)))
        return max(start, low)

    def _missing_units_reason(self) -> str:
        """Return why queues are known to lack units; empty if none is."""
        state, low, snapshot = self._state, self._log.min_offset, self._snapshot
        if snapshot is not None and not self._is_of_rocketmq:
            names = lost_queues(snapshot, state.queues, low)
            return f"queues lack units: {', '.join(names[:10])}" if names else ""
        if snapshot is None and state.queues.journal.exists:
            return f"{snapshots.PATH} is missing"
        if self._log.segments.starts and not any(queue.end for queue in state.queues):
            return "there is no queue"
        if low == 0 and any(queue.files.first_position for queue in state.queues):
            return "queues begin after the start of the log"
        if names := state.queues.missing_queues():  # RocketMQ keeps no note of the queues it had
            return f"queues that groups have read are missing: {', '.join(names[:10])}"
        return ""

    def _first_lost_offset(self) -> int:
        """Return the log offset of the first record of queue files that were begun but do not
        exist."""
        state, low = self._state, self._log.min_offset
        start = _END_OF_TIME
        for begun in [] if self._is_of_rocketmq else state.queues.journal.load():
            queue = state.queues.by_key.get((begun.topic, begun.queue_id))
            deletion = state.deleted.of_topic.get(begun.topic)
            is_wanted = begun.log_offset >= (max(low, deletion.log_end) if deletion else low)
            if is_wanted and (queue is None or not queue.has_file(begun.position)):
                self._report.notes.append(
                    f"queue {begun.topic}/{begun.queue_id} lacks the file {begun.position:020d}"
                )
                start = min(start, begun.log_offset)
        return start

    def _last_log_offset(self, queue: ConsumeQueue) -> int:
        unit = queue.unit(queue.end - 1)
        return unit[0] if unit is not None else 0

    def _check_last_units(self, start: int) -> None:
        """Check that each queue's last unit leads to a record of that queue."""
        segments = self._log.segments
        for queue in self._state.queues:
            unit = queue.unit(queue.end - 1)
            if unit is None or unit[0] < segments.first_position:
                continue
            record = segments.read(unit[0], min(unit[1], segments.segment_size))
            if unit[0] >= start and not self._report.was_clean:
                continue  # the scan will see
            if record_fault(record, unit[0], queue_offset=queue.end - 1) is not None:
                queue.invalidate_last_unit()

    def _suspect_start(self) -> int:
        """Return the log offset from which on the scan must read to rebuild suspect queues."""
        start = _END_OF_TIME
        for queue in self._state.queues:
            if queue.is_suspect:
                name = f"{queue.topic}/{queue.queue_id}"
                self._report.queues_mended.append(name)
                unit = queue.unit(queue.end - 1)
                start = min(start, unit[0] if unit is not None else 0)
        return max(start, self._log.min_offset)

    # -- the scan -----------------------------------------------------------------------------

    def _scan(self, start: int) -> tuple[LogWalker, int]:
        """Read the log from an offset on, and make the queues agree. Return the scan, and where to
        append."""
        state, report = self._state, self._report
        durable_offset = _END_OF_TIME
        if not report.was_clean and not self._is_same_boot:
            durable_offset = min(
                state.durability.checkpoint.confirmed_offset, self._log.segments.end
            )
            if state.ends.waits_for_disk:
                # Units of records that were not durable were never written.
                durable_offset = max(
                    [durable_offset, *(self._last_log_offset(queue) + 1 for queue in state.queues)]
                )
        scan = LogWalker(
            self._log.segments,
            durable_offset=durable_offset,
            checks_body=state.settings.checks_crc_on_recovery,
            has_crc=state.settings.appends_crc,
            leads_to=state.queues.unit_check(),
        )
        self._rebuild = QueuesRebuild(
            state, is_whole=start <= self._log.min_offset, was_clean=report.was_clean
        )
        report.scanned_from = start
        state.dispatcher.drop_collected_keys()
        for records in scan.record_batches(start):
            self._rebuild.damaged += scan.damaged[len(self._rebuild.damaged) :]
            self._rebuild.add_records(records)
            if state.index is not None and records[-1].log_offset >= state.index.end_log_offset:
                self._index_records(records)
        end = self._find_append_offset(scan)
        self._rebuild.finish()
        return scan, end

    def _index_records(self, records: list[ScannedRecord]) -> None:
        """Add missing entries of these records to the index."""
        index = self._state.index
        assert index is not None
        # Of the newest record indexed, the first keys alone may be in a file that became full.
        done = index.end_log_offset + self._report.was_clean
        keys = bytearray()
        for record in records:
            if record.log_offset >= done:
                self._keys.add(keys, record)
        self._state.dispatcher.index_recovered_keys(keys)

    # -- the end ------------------------------------------------------------------------------

    def _finish(self, scan: LogWalker, end: int) -> None:
        state, report = self._state, self._report
        report.log_end = end
        report.records_count = scan.records_count
        report.truncated_size = self._log.segments.clear_after(end)
        state.deleted.truncate(end)
        if report.truncated_size:
            report.notes.append(f"cut at {end}: {scan.cut_reason}")
        mended = {*report.queues_mended, *self._rebuild.mended}
        for queue in state.queues:
            if queue.truncate_at_log_offset(end):
                mended.add(f"{queue.topic}/{queue.queue_id}")
        report.queues_mended = sorted(mended)[:_NOTES_MAX]
        self._restore_next_offsets()
        for queue in state.queues:
            queue.drop_before(self._log.min_offset)
            queue.reset_next_offset()
        self._reserve_stalled_offsets()
        index = state.index
        if index is not None and index.end_log_offset >= end:
            index.remove_all()
            state.dispatcher.drop_collected_keys()
            report.index_rebuilt.append("the index led past the end of the log")
            rest = LogWalker(
                self._log.segments, checks_body=False, leads_to=state.queues.unit_check()
            )
            for records in rest.record_batches(self._log.min_offset):
                self._index_records([record for record in records if record.log_offset < end])

    def _reserve_stalled_offsets(self) -> None:
        """Reserve the queue offsets of records that become visible when the disk has space."""
        stalled = self._rebuild.stalled
        if stalled:
            self._report.notes.append(f"the disk has no room for {len(stalled)} units of queues")
        for item in stalled:
            assert item.queue is not None
            item.queue.set_next_offset(item.queue_offset + 1)

    def _restore_next_offsets(self) -> None:
        """Let queues that lost records continue after the highest offsets that they once
        assigned."""
        if self._snapshot is None or not self._report.damaged:
            return
        for topic, ends in self._snapshot.queue_ends.items():
            for queue_id, end in ends.items():
                queue = self._state.queues.by_key.get((topic, queue_id))
                if queue is not None and 0 < queue.end < end:
                    queue.fill_gap(end)

    def _mark_unsynced(self, start: int) -> int:
        """Treat everything as unsynced that the checkpoint does not call durable. Return the log
        offset at which that begins."""
        start = min(start, newest_durable_segment(self._state))
        for queue in self._state.queues:
            queue.mark_unsynced_from(start)
        if self._state.index is not None:
            self._state.index.mark_unsynced_from(start)
        return start

    def _write_again(self, end: int) -> None:
        """Rewrite what the previous process wrote. Its last sync may have failed, so that data are
        in memory only. This is done after every abnormal end, because the record of the boot may be
        missing."""
        state, segments = self._state, self._log.segments
        position = max(
            newest_durable_segment(state), min(state.durability.checkpoint.confirmed_offset, end)
        )
        while position < end:
            following = min(segments.start_of(position) + segments.segment_size, end)
            rewrite_log(segments, position, following - position)
            position = following
        if not self._is_same_boot:  # otherwise `_has_all_written` has rewritten them
            for _ in rewrite_derived(state, maybe_unsynced_from(state)):
                pass

    def _sync(self, start: int, end: int) -> None:
        """Sync all files that the previous process may not have synced."""
        state = self._state
        # In this order: data in pages may never reach the disk unless written again, and only then
        # does a successful sync prove that they have (store/failed_syncs.py).
        if not self._report.was_clean:
            start = self._mark_unsynced(start)
            self._write_again(end)
        if not self._report.was_clean or self._report.truncated_size:
            for segment in self._log.segments.starts:
                if segment + self._log.segment_size > start:
                    self._log.segments.get_or_create(segment).sync()
        for queue in state.queues:
            if queue.is_dirty or not self._report.was_clean:
                for file in queue.take_dirty_files():
                    file.sync()
        if state.index is not None:
            for file in state.index.take_dirty_files():
                file.sync()
        self._write_snapshot()

    def _write_snapshot(self) -> None:
        """Write the snapshot for the next start. On a full disk, note that it lacks the boot."""
        try:
            write_snapshot(self._state)
        except DiskFull:
            self._state.set_boot_saved(is_noted=False)
            self._report.notes.append("the disk is full; the next start reads more of the log")
