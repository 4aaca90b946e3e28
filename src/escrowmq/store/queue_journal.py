"""The queue journal: which queue files were begun since the snapshot (queue_snapshot.py).

After a kill, all written units are still there, so the next start reads the log from the newest
unit on. Without this journal, it would not notice that a queue file was removed meanwhile.
Lines of `["topic",queue id,position of the file,log offset of its first record]`, then zeros.

RocketMQ has no such file, and it is not required: without it, missing files are found as far as the
snapshot tells."""

from __future__ import annotations

from typing import Final

import msgspec

from escrowmq.base.ports import Disk, File
from escrowmq.errors import StorageError
from escrowmq.store.trailing_zeros import strip_trailing_zeros

PATH: Final = "queues.journal"
SIZE: Final = 1024 * 1024


class QueueFileStart(msgspec.Struct, array_like=True, frozen=True):
    """Where a queue file begins: its queue, its position, and the log offset of its first
    record."""

    topic: str
    queue_id: int
    position: int
    log_offset: int


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(QueueFileStart).decode


class QueueJournal:
    """A file of notes about new queue files. It is cleared after each snapshot."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._file: File | None = None
        self._end = 0
        self._is_dirty = False
        self.is_full = False
        """Whether a snapshot is needed, because the journal has no space for more notes."""

    @property
    def exists(self) -> bool:
        """Whether the journal exists on the disk."""
        return self._disk.size(PATH) is not None

    def load(self) -> list[QueueFileStart]:
        """Return where the queue files begin that an earlier process noted, up to the first torn or
        invalid line."""
        found = []
        for line in (self._disk.read(PATH) or b"").split(b"\n"):
            try:
                found.append(_decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError):
                break
        return found

    def clear(self) -> None:
        """Clear the journal, because a snapshot contains everything noted. On a full disk, nothing
        is noted from now on: then a start may miss lost files, as in RocketMQ."""
        try:
            if self._file is None:
                size = self._disk.size(PATH)
                if size not in (None, SIZE):
                    self._disk.remove(PATH)
                self._file = self._disk.open(PATH, size=SIZE)
                self._file.reserve(0, SIZE)
                was = self._file.read(0, SIZE) if size == SIZE else b""
                self._end = len(strip_trailing_zeros(was))
            self._file.write(0, bytes(self._end))
        except (StorageError, OSError):
            self._file = None
            return
        self._end = 0
        self._is_dirty = True
        self.is_full = False

    def note_snapshot_begun(self) -> None:
        """Note that a snapshot is about to be written. It was requested because the journal is
        full."""
        self.is_full = False

    def note_file(self, topic: str, queue_id: int, *, position: int, log_offset: int) -> None:
        """Note that a queue file gets its first unit."""
        if self._file is None:
            return
        line = _encode(QueueFileStart(topic, queue_id, position, log_offset)) + b"\n"
        if self._end + len(line) >= SIZE:
            self.is_full = True
            return
        self._file.write(self._end, line)
        self._end += len(line)
        self._is_dirty = True

    def write_again(self) -> None:
        """Rewrite the notes in place (store/failed_syncs.py)."""
        if self._file is not None:
            self._file.write_again(0, self._end)
            self._is_dirty = True

    def take_dirty_files(self) -> list[File]:
        """Return the file if it may hold unsynced notes, and treat it as clean from now on."""
        if self._file is None or not self._is_dirty:
            return []
        self._is_dirty = False
        return [self._file]

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
