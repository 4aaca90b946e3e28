"""The disk of a test's broker. It is in memory, and can be full or stall."""

from __future__ import annotations

import threading

from escrowmq.testing.disk import SimDisk

FULL_PERCENT = 99


class KitDisk(SimDisk):
    """A disk in memory whose syncs can stall. Only syncs run on another thread
    (net/file_thread)."""

    def __init__(self) -> None:
        super().__init__()
        self._usual_percent = self.used_percent
        self._moves = threading.Event()
        self._moves.set()

    def set_full(self, *, is_full: bool) -> None:
        """Fill the disk, or free it again."""
        self.used_percent = FULL_PERCENT if is_full else self._usual_percent

    @property
    def is_stalled(self) -> bool:
        """Whether syncs stall."""
        return not self._moves.is_set()

    def stall(self) -> None:
        """Stall syncs from now on."""
        self._moves.clear()

    def resume(self) -> None:
        """Let stalled syncs complete."""
        self._moves.set()

    def count_operation(self, kind: str) -> None:
        """Count an operation (SimDisk.count_operation); a sync waits while the disk is stalled."""
        if kind == "sync":
            self._moves.wait()
        super().count_operation(kind)
