"""Numbers of delivered checks, one byte per half message, which is all that a check writes.

Their loss is harmless: a missing count means more checks, never fewer. The counts of discarded
halves are kept as long as their file.
"""

from __future__ import annotations

from typing import Final

from escrowmq.base.ports import Disk
from escrowmq.errors import StorageError
from escrowmq.store.segment import Segments
from escrowmq.store.trailing_zeros import strip_trailing_zeros

FOLDER: Final = "escrow/checks"
_SEGMENT_SIZE: Final = 1 << 20
COUNT_MAX: Final = 255


class CheckCounts:
    """The numbers of delivered checks by half queue offset, in files of a million."""

    def __init__(self, disk: Disk) -> None:
        self._files = Segments(disk, FOLDER, segment_size=_SEGMENT_SIZE)
        self.is_empty = True
        self._loaded_end = 0

    def load(self, end: int) -> None:
        """Load the counts of earlier processes for halves before `end`. Clear later ones: they
        belong to halves lost in a power failure, whose offsets will be used again."""
        self._loaded_end = end
        try:
            self._files.load()
        except StorageError:
            self._files.remove_all()
        self.is_empty = not self._files.starts
        for start in self._files.starts:
            if start >= self._files.start_of(end):
                self._clear_from(start, max(end - start, 0))

    def _clear_from(self, start: int, position: int) -> None:
        """Clear the counts in a file from a position on, durably. Otherwise new halves at these
        offsets could be discarded because of checks they never had."""
        file = self._files.file(start)
        assert file is not None, start
        rest = file.read(position, _SEGMENT_SIZE - position)
        try:
            if counts := strip_trailing_zeros(rest):
                file.write(position, bytes(len(counts)))
                file.sync()
        except (StorageError, OSError):
            position = 0  # start without these counts rather than not at all
        if not position:
            self._files.remove(start)

    def count(self, queue_offset: int) -> int:
        """Return the number of checks that earlier processes delivered for a half. For new halves
        no file is read, because this must not fail once the record is in the log."""
        if self.is_new(queue_offset):
            return 0
        found = self._files.read(queue_offset, 1)
        return found[0] if found else 0

    def is_new(self, queue_offset: int) -> bool:
        """Whether a half is too new to have counts of earlier processes."""
        return self.is_empty or queue_offset >= self._loaded_end

    def record(self, queue_offset: int, checks: int) -> None:
        """Record the number of delivered checks. If the disk fails, it is not recorded."""
        self.is_empty = False
        try:
            file = self._files.get_or_create(queue_offset)
            position = queue_offset - self._files.start_of(queue_offset)
            file.write(position, bytes((min(checks, COUNT_MAX),)))
        except (StorageError, OSError):
            return

    def drop_before(self, queue_offset: int) -> None:
        """Delete the counts of halves before this one, which are settled."""
        for start in self._files.starts:
            if start + _SEGMENT_SIZE <= queue_offset:
                self._files.remove(start)

    def close(self) -> None:
        """Close all files."""
        self._files.close()
