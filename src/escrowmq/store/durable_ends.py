"""What is durable in a store: the log up to an offset, and the units and index entries up to an
offset. The checkpoint tells the next start."""

from __future__ import annotations

from escrowmq.base.ports import File
from escrowmq.codec.entries import Checkpoint
from escrowmq.store.checkpoint import CheckpointFile
from escrowmq.store.log_ends import LogEnds


class Durability:
    """Is informed of each finished sync; it requests none (flush.py does)."""

    def __init__(self, ends: LogEnds, checkpoint: CheckpointFile, *, has_index: bool) -> None:
        self._ends = ends
        self._checkpoint = checkpoint
        self._has_index = has_index
        self.derived_offset = 0
        """The units and index entries of records before it are durable."""

    @property
    def checkpoint(self) -> Checkpoint:
        """What the checkpoint says, or will say as soon as it is written."""
        return self._checkpoint.value

    @property
    def safe_ms(self) -> int:
        """Everything stored before this time is durable everywhere."""
        safe_ms, index_ms = self._checkpoint.safe_ms, self.checkpoint.index_ms
        return min(safe_ms, index_ms) if self._has_index and index_ms else safe_ms

    def all_synced(self, stored_ms: int, derived_offset: int, derived_ms: int) -> None:
        """The log is durable up to its end, with the time of its newest record; so is everything
        that leads to records before an offset, with the time of the newest of those."""
        saved = self.checkpoint
        self._ends.made_durable(self._ends.written)
        saved.confirmed_offset, saved.log_ms = self._ends.durable, stored_ms
        self.derived_offset, saved.queue_ms = derived_offset, derived_ms
        if self._has_index:
            saved.index_ms = derived_ms

    def log_synced(self, log_offset: int, stored_ms: int) -> None:
        """The log is durable up to an offset; the time is that of the newest record before it."""
        self._ends.made_durable(log_offset)
        self.checkpoint.log_ms = max(self.checkpoint.log_ms, stored_ms)
        self.checkpoint.confirmed_offset = self._ends.durable

    def derived_synced(self, log_offset: int, stored_ms: int) -> None:
        """Units and entries of records before an offset are durable; the time is that of the newest
        of them."""
        assert log_offset <= self._ends.durable, "units before their records"
        self.derived_offset = max(self.derived_offset, log_offset)
        saved = self.checkpoint
        saved.queue_ms = max(saved.queue_ms, stored_ms)
        if self._has_index:
            saved.index_ms = max(saved.index_ms, stored_ms)

    @property
    def is_stale(self) -> bool:
        """Whether the checkpoint file lags behind what is known."""
        return self._checkpoint.is_stale

    def write_checkpoint(self, unseen_from: int) -> tuple[File, ...]:
        """Write the checkpoint if there is anything new. Returns the file to sync. Units are
        written in the log's order, up to a record; records of one input may have later units
        already."""
        self.checkpoint.unseen_from = (
            unseen_from if unseen_from < self.checkpoint.confirmed_offset else -1
        )
        return self.files() if self._checkpoint.write() else ()

    def note_open(self, *, is_open: bool) -> None:
        """Note in the checkpoint whether the store is open, where no file "abort" can be
        created."""
        self.checkpoint.is_open = is_open
        if self._checkpoint.write():
            for file in self.files():
                file.sync()

    def files(self) -> tuple[File, ...]:
        """The checkpoint's file."""
        return tuple(self._checkpoint.files())
