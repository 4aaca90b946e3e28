"""Records what is durable: the log, units and index entries, each up to an offset. The checkpoint
keeps this for the next start."""

from __future__ import annotations

from escrowmq.base.ports import File
from escrowmq.codec.store_entries import Checkpoint
from escrowmq.store.checkpoint import CheckpointFile
from escrowmq.store.log_ends import LogEnds


class DurableEnds:
    """Records finished syncs. It requests none (flush.py does)."""

    def __init__(self, ends: LogEnds, checkpoint: CheckpointFile, *, has_index: bool) -> None:
        self._ends = ends
        self._checkpoint = checkpoint
        self._has_index = has_index
        self.derived_offset = 0
        """The log offset before which all records have durable units and index entries."""

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint's values, as they are or will be in the file."""
        return self._checkpoint.value

    @property
    def durable_until_ms(self) -> int:
        """The store time before which all records are durable, with units and index entries."""
        safe_ms, index_ms = self._checkpoint.durable_until_ms, self.checkpoint.index_ms
        return min(safe_ms, index_ms) if self._has_index and index_ms else safe_ms

    def note_all_synced(self, stored_ms: int, derived_offset: int, derived_ms: int) -> None:
        """Record that the log is durable up to its end, and units and index entries up to
        `derived_offset`. The times are those of the newest records before these offsets."""
        saved = self.checkpoint
        self._ends.set_durable(self._ends.written_end)
        saved.confirmed_offset, saved.log_ms = self._ends.durable, stored_ms
        self.derived_offset, saved.queue_ms = derived_offset, derived_ms
        if self._has_index:
            saved.index_ms = derived_ms

    def note_log_synced(self, log_offset: int, stored_ms: int) -> None:
        """Record that the log is durable up to an offset; `stored_ms` is the time of the newest
        record before it."""
        self._ends.set_durable(log_offset)
        self.checkpoint.log_ms = max(self.checkpoint.log_ms, stored_ms)
        self.checkpoint.confirmed_offset = self._ends.durable

    def note_derived_synced(self, log_offset: int, stored_ms: int) -> None:
        """Record that units and entries of records before an offset are durable; `stored_ms` is the
        time of the newest of them."""
        assert log_offset <= self._ends.durable, "units before their records"
        self.derived_offset = max(self.derived_offset, log_offset)
        saved = self.checkpoint
        saved.queue_ms = max(saved.queue_ms, stored_ms)
        if self._has_index:
            saved.index_ms = max(saved.index_ms, stored_ms)

    @property
    def is_stale(self) -> bool:
        """Whether the checkpoint file has an older value than the one in memory."""
        return self._checkpoint.is_stale

    def write_checkpoint(self, unseen_from: int) -> tuple[File, ...]:
        """Write the checkpoint if it has changed. Return the file to sync. `unseen_from`: the log
        offset from which on records may lack units."""
        self.checkpoint.unseen_from = (
            unseen_from if unseen_from < self.checkpoint.confirmed_offset else -1
        )
        return self.checkpoint_files() if self._checkpoint.write() else ()

    def note_open(self, *, is_open: bool) -> None:
        """Record in the checkpoint whether the store is open. Used when the file "abort" cannot be
        created."""
        self.checkpoint.is_open = is_open
        if self._checkpoint.write():
            for file in self.checkpoint_files():
                file.sync()

    def checkpoint_files(self) -> tuple[File, ...]:
        """Return the checkpoint's file."""
        return tuple(self._checkpoint.files())
