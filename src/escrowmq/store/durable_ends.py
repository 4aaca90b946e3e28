"""What of a store is durable: up to where the log is, and up to where the units and index entries
that lead to it are. The checkpoint says so to the next start."""

from __future__ import annotations

from escrowmq.base.ports import File
from escrowmq.codec.entries import Checkpoint
from escrowmq.store.checkpoint import CheckpointFile
from escrowmq.store.log_ends import LogEnds


class Durability:
    """Told of each sync that is done; it asks for none (flush.py does)."""

    def __init__(self, ends: LogEnds, checkpoint: CheckpointFile, *, has_index: bool) -> None:
        self._ends = ends
        self._checkpoint = checkpoint
        self._has_index = has_index
        self.derived_offset = 0
        """Units and index entries of records before it are durable."""

    @property
    def said(self) -> Checkpoint:
        """What the checkpoint says, or will as soon as it is written."""
        return self._checkpoint.value

    @property
    def safe_ms(self) -> int:
        """What was stored before this is durable everywhere."""
        safe_ms, index_ms = self._checkpoint.safe_ms, self.said.index_ms
        return min(safe_ms, index_ms) if self._has_index and index_ms else safe_ms

    def all_synced(self, stored_ms: int, derived_offset: int, derived_ms: int) -> None:
        """The log up to its end, when its newest record was stored; and all that leads to records
        before an offset, when the newest of those was."""
        said = self.said
        self._ends.made_durable(self._ends.written)
        said.confirmed_offset, said.log_ms = self._ends.durable, stored_ms
        self.derived_offset, said.queue_ms = derived_offset, derived_ms
        if self._has_index:
            said.index_ms = derived_ms

    def log_synced(self, log_offset: int, stored_ms: int) -> None:
        """The log up to an offset; when the newest record before it was stored."""
        self._ends.made_durable(log_offset)
        self.said.log_ms = max(self.said.log_ms, stored_ms)
        self.said.confirmed_offset = self._ends.durable

    def derived_synced(self, log_offset: int, stored_ms: int) -> None:
        """What leads to records before an offset; when the newest of them was stored."""
        assert log_offset <= self._ends.durable, "units before their records"
        self.derived_offset = max(self.derived_offset, log_offset)
        said = self.said
        said.queue_ms = max(said.queue_ms, stored_ms)
        if self._has_index:
            said.index_ms = max(said.index_ms, stored_ms)

    @property
    def is_stale(self) -> bool:
        """Whether the checkpoint's file does not say what is known."""
        return self._checkpoint.is_stale

    def say(self, unseen_from: int) -> tuple[File, ...]:
        """Write the checkpoint: its file, to be synced, if there was anything new to say. Units are
        written in the log's order, up to a record; what is in one input with it may have its own.
        """
        self.said.unseen_from = unseen_from if unseen_from < self.said.confirmed_offset else -1
        return self.files() if self._checkpoint.write() else ()

    def note_open(self, *, is_open: bool) -> None:
        """Say whether the store is open, for certain: where no file "abort" can."""
        self.said.is_open = is_open
        if self._checkpoint.write():
            for file in self.files():
                file.sync()

    def files(self) -> tuple[File, ...]:
        """The checkpoint's file."""
        return tuple(self._checkpoint.files())
