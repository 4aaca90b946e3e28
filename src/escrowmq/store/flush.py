"""Decides which files are synced when, and applies the results.

The log comes first: with SYNC_FLUSH it is synced as soon as anything waits and no sync is running,
so that one sync serves all that arrived meanwhile. Queues and index are flushed in rounds. After a
round, the checkpoint may record it.
"""

from __future__ import annotations

import logging
from typing import Final

from escrowmq.base.effects import Sync
from escrowmq.base.fixed_limits import UNSEEN_MAX
from escrowmq.base.ports import File
from escrowmq.errors import StorageError
from escrowmq.store.consume_queue import ConsumeQueue
from escrowmq.store.store_parts import StoreState

_log = logging.getLogger(__name__)

_PAGE_SIZE: Final = 4096
_FILE_SPAN_MS: Final = 20
_ROUND_SPAN_MAX_MS: Final = 60_000
"""The longest pause that the queue files of a round add before the next round; each file adds a
little."""

_ROUND_FILES_MAX: Final = 32
"""The most files of queues and index in one sync. The others of the round follow in later syncs."""

_ROUND_FILES_MAX_WAITED: Final = 4
"""The most files of queues and index in a sync that senders wait for."""

_NEVER_MS: Final = 1 << 62
_ALL: Final = _NEVER_MS


class Flusher:
    """Chooses the next sync, and records what is durable."""

    def __init__(self, state: StoreState) -> None:
        settings = state.settings
        self._state = state
        self._durability = state.durability
        self._ends = state.ends
        self._interval_ms = settings.flush_interval_ms
        self._thorough_ms = settings.flush_thorough_ms
        self._size_min = settings.flush_pages_min * _PAGE_SIZE
        self._queue_interval_ms = settings.queue_flush_interval_ms
        self.failed: str | None = None
        self._is_finished = False
        self._under_way: Sync | None = None
        self._under_way_ms = 0
        self._flushed_at_ms = 0
        self._round: list[File] = []
        self._queues: list[ConsumeQueue] = []
        """Queues of the current round whose files are not collected yet."""
        self._round_ms = -1
        self._round_offset = 0
        """The current round covers the units and index entries of records before this log
        offset."""
        self._round_due_ms = self._round_began_ms = 0
        self._found_count = 0
        self._is_put_off = False
        self.quiet_until_ms = 0
        """The time before which no sync is due, whatever is stored. It saves work, because the
        broker asks at each input."""

    def start(self, now_ms: int, *, stored_ms: int) -> None:
        """Begin with everything synced, after the store was opened."""
        self._flushed_at_ms, self.quiet_until_ms = now_ms, 0  # the clock may have been set back
        self._round_due_ms = now_ms + self._queue_interval_ms
        self._all_synced(stored_ms)
        self._write_checkpoint()

    def end_quiet_time(self) -> None:
        """Let the next call check whether a sync is due. Call this when other records may wait for
        the disk now."""
        self.quiet_until_ms = 0

    def next_sync(self, now_ms: int) -> Sync | None:
        """Return the next sync if one is due and none is running. After a failed sync,
        store/failed_syncs decides instead."""
        if self._under_way is not None or self._is_finished:
            return None
        assert self.failed is None, "a sync now could call durable what the failed one lost"
        state = self._state
        log_due = self._is_awaited or self._is_flush_due(now_ms)
        if now_ms >= self._round_due_ms:
            self._begin_round(now_ms)
        if self._queues:
            self._find_next_files()
        if not log_due and not self._round:
            self._set_quiet_time()
            return None
        # The log is in every sync: units must not count as durable before their records.
        files = state.log.unsynced_files()
        if self._round:
            count = _ROUND_FILES_MAX_WAITED if self._is_awaited else _ROUND_FILES_MAX
            files += tuple(self._round[:count])
            del self._round[:count]
        self._under_way = Sync(files, state.log.end_offset)
        self._under_way_ms = state.log.stored_ms
        return self._under_way

    def _set_quiet_time(self) -> None:
        """Compute until when no sync is due."""
        if not self._ends.waits_for_disk:
            wait_ms = min(self._interval_ms, self._thorough_ms)
            self.quiet_until_ms = min(self._flushed_at_ms + wait_ms, self._round_due_ms)

    @property
    def _unsynced_size(self) -> int:
        return self._state.log.end_offset - self._ends.durable

    @property
    def _is_awaited(self) -> bool:
        """Whether a record waits for the next sync."""
        return self._ends.waits_for_disk and self._unsynced_size > 0

    def _is_flush_due(self, now_ms: int) -> bool:
        passed_ms, size = now_ms - self._flushed_at_ms, self._unsynced_size
        return size > 0 and (
            passed_ms >= self._thorough_ms
            or (passed_ms >= self._interval_ms and size >= self._size_min)
        )

    def sync_finished(self, log_offset: int, now_ms: int) -> None:
        """Process a finished sync: record what became durable, and make it visible."""
        assert self._under_way is not None, "a sync was wanted"
        assert log_offset == self._under_way.log_offset, log_offset
        self._under_way = None
        if self._is_finished:
            return
        self.failed = None
        self._flushed_at_ms = now_ms
        seen_until = self._ends.visible_end
        self._durability.note_log_synced(log_offset, self._under_way_ms)
        if self._round_ms >= 0 and not self._round and not self._queues:
            self._durability.note_derived_synced(self._round_offset, self._round_ms)
            self._round_ms = -1
        if self._ends.visible_end != seen_until:
            self._state.dispatcher.dispatch_waiting()

    def sync_failed(self, reason: str) -> None:
        """Stop syncing until the data that the failed sync may have lost is rewritten."""
        self.failed, self._under_way, self.quiet_until_ms = reason, None, 0

    @property
    def is_busy(self) -> bool:
        """Whether a sync is running, or no more syncs will follow."""
        return self._under_way is not None or self._is_finished

    def begin_sync(self, sync: Sync | None) -> Sync | None:
        """Treat this sync, which follows the repair of a failed one, as running; return it."""
        self._under_way, self._under_way_ms = sync, self._state.log.stored_ms
        return sync

    def restart_round(self, now_ms: int) -> tuple[File, ...]:
        """Restart the round with all files that may be unsynced, and return them, including those
        of the failed sync."""
        self._round, self._queues, self._round_ms = [], [], -1
        self._collect_round(now_ms)
        self._find_files(_ALL)
        files, self._round = tuple(self._round), []
        return (*files, *self._durability.checkpoint_files())

    def drop_collected_queues(self) -> None:
        """Restart the round, because queues are about to be removed; treat all others as
        unsynced."""
        self._round, self._queues, self._round_ms = [], [], -1
        # Files that the round had taken count as clean already: nothing else would sync them.
        for queue in self._state.queues:
            queue.mark_unsynced()

    def wake_at_ms(self) -> int:
        """The time at which `next_sync` may return a sync that does not depend on new records."""
        if self._under_way is not None:
            return _NEVER_MS
        if self.failed is not None:
            return _NEVER_MS
        unsynced = self._unsynced_size
        if unsynced:
            # A small amount waits for more; an earlier wake would find nothing due.
            wait_ms = self._interval_ms if unsynced >= self._size_min else self._thorough_ms
            return min(self._round_due_ms, self._flushed_at_ms + wait_ms)
        return self._round_due_ms if self._has_unsynced_files() else _NEVER_MS

    def sync_everything(self, now_ms: int) -> bool:
        """Sync everything before the store is closed. Return whether all of it is durable, visible
        and in the index."""
        state = self._state
        state.dispatcher.flush_keys()
        self._is_finished = True
        if self.failed is not None:
            return False
        try:
            # A sync that another thread runs now may fail: its files are synced here too.
            under_way = self._under_way.files if self._under_way is not None else ()
            self._find_files(_ALL)
            for file in (*under_way, *self._round, *state.log.unsynced_files()):
                file.sync()
            self._round, self._round_ms = [], -1
            self._durability.note_log_synced(state.log.end_offset, state.log.stored_ms)
            state.dispatcher.dispatch_waiting(runs_max=UNSEEN_MAX)
            state.dispatcher.show_held_back(now_ms)
            state.dispatcher.flush_keys()
            self._round_due_ms = now_ms
            self._collect_round(now_ms)
            self._find_files(_ALL)
            for file in self._round:
                file.sync()
            self._all_synced(state.log.stored_ms)
            self._write_checkpoint()
            for file in self._durability.checkpoint_files():
                file.sync()
        except (StorageError, OSError) as error:
            self.failed = str(error)
            return False
        return state.dispatcher.underived_from >= state.log.end_offset

    def _all_synced(self, stored_ms: int) -> None:
        derived = self._state.dispatcher
        self._durability.note_all_synced(stored_ms, derived.derived_offset, derived.derived_ms)

    def _write_checkpoint(self) -> tuple[File, ...]:
        return self._durability.write_checkpoint(self._state.dispatcher.underived_from)

    def _has_unsynced_files(self) -> bool:
        """Whether a round has anything to sync, apart from the log."""
        dispatched_offset = self._state.dispatcher.dispatched_offset
        return dispatched_offset > self._durability.derived_offset or self._durability.is_stale

    def _begin_round(self, now_ms: int) -> None:
        """Begin a round. If a file cannot be opened, the files found so far are synced without a
        checkpoint, and the next round has the others."""
        if self._round_ms >= 0:  # a round is still running
            self._round_due_ms = now_ms + self._queue_interval_ms
            return
        try:
            self._collect_round(now_ms)
        except (StorageError, OSError) as error:
            self._postpone_rest(error)
        else:
            self._note_all_found()

    def _postpone_rest(self, error: Exception) -> None:
        if not self._is_put_off:
            _log.error("queues and index are made durable later: %s", error)
        self._is_put_off = True
        self._queues, self._round_ms = [], -1

    def _find_next_files(self) -> None:
        """Collect the files of as many queues as the next sync may have."""
        try:
            self._find_files(_ROUND_FILES_MAX)
        except (StorageError, OSError) as error:
            self._postpone_rest(error)
        else:
            self._note_all_found()

    def _note_all_found(self) -> None:
        """Note that all files of a round could be opened."""
        if not self._queues:
            self._is_put_off = False

    def _find_files(self, count: int) -> None:
        while self._queues and len(self._round) < count:
            files = self._queues.pop().take_dirty_files()
            self._round += files
            self._found_count += len(files)
        # A thousand syncs a second would keep the disk busy. Units that queues lose in a power
        # failure are rebuilt from the log. RocketMQ syncs a little-changed queue once a minute.
        span_ms = min(self._found_count * _FILE_SPAN_MS, _ROUND_SPAN_MAX_MS)
        self._round_due_ms = max(self._round_due_ms, self._round_began_ms + span_ms)

    def _collect_round(self, now_ms: int) -> None:
        """Collect what a round must sync: changed queues, index files, journal and checkpoint."""
        self._round_due_ms = now_ms + self._queue_interval_ms
        state = self._state
        state.dispatcher.flush_keys()
        # Noted before any file is taken: writes during the round belong to the next one.
        derived_ms = state.dispatcher.derived_ms
        self._round_offset = state.dispatcher.derived_offset
        self._queues = [queue for queue in state.queues if queue.is_dirty]
        self._round_began_ms, self._found_count = now_ms, 0
        if state.index is not None:
            self._round += state.index.take_dirty_files()
        self._round += state.queues.journal.take_dirty_files()
        if self._round or self._queues:
            # Units that a full disk holds back are younger than this.
            self._round_ms = max(derived_ms, self._durability.checkpoint.queue_ms)
        if told := self._write_checkpoint():
            self._round += told
            self._round_ms = max(self._round_ms, self._durability.checkpoint.queue_ms)
