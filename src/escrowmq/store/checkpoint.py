"""The checkpoint file: the store times up to which log, queues and index are durable.

It is written in place after the syncs that make it true, and becomes durable with the next sync. It
lies within one sector, so it needs no new space.
"""

from __future__ import annotations

from typing import Final

from escrowmq.base.ports import Disk, File
from escrowmq.codec.store_entries import (
    CHECKPOINT_SIZE,
    Checkpoint,
    decode_checkpoint,
    encode_checkpoint,
)

PATH: Final = "checkpoint"
_SECTOR_SIZE: Final = 512
_FOREIGN: Final = slice(40, 496)
"""Bytes where newer RocketMQ brokers may keep data of their own. They are not changed."""

_MARGIN_MS: Final = 3_000


class CheckpointFile:
    """Reads and writes the checkpoint."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._file: File | None = None
        self._written = self._foreign = b""
        self.value = Checkpoint()

    def load(self, now_ms: int) -> list[str]:
        """Read the file, or create it. Times in the future are damage, and treated as 0."""
        notes = []
        size = self._disk.size(PATH)
        if size is not None and size != CHECKPOINT_SIZE:
            notes.append(f"checkpoint has {size} bytes instead of {CHECKPOINT_SIZE}; recreated")
            self._disk.remove(PATH)
        self._file = self._disk.open(PATH, size=CHECKPOINT_SIZE)
        data = self._file.read(0, CHECKPOINT_SIZE)
        value, self._foreign = decode_checkpoint(data), data[_FOREIGN]
        for name in ("log_ms", "queue_ms", "index_ms"):
            found = getattr(value, name)
            if not 0 <= found <= now_ms + _MARGIN_MS:
                notes.append(f"checkpoint: {name} is {found}, which is impossible; treated as 0")
                setattr(value, name, 0)
        self.value = value
        return notes

    @property
    def durable_until_ms(self) -> int:
        """The store time before which all records are durable in log and queues (RocketMQ:
        getMinTimestamp)."""
        return max(min(self.value.log_ms, self.value.queue_ms) - _MARGIN_MS, 0)

    @property
    def is_stale(self) -> bool:
        """Whether the file has an older value than the one in memory."""
        return self._encoded() != self._written

    def write(self) -> bool:
        """Write the value if it has changed. Return whether it was written."""
        data = self._encoded()
        if data == self._written or self._file is None:
            return False
        self._file.write(0, data)
        self._written = data
        return True

    def write_again(self) -> None:
        """Write the same value again, after a sync that failed (store/failed_syncs.py)."""
        if self._file is not None and self._written:
            # The page may have been dropped: a read would then return older bytes from the disk.
            self._file.write(0, self._written)
            self._file.write_again(0, len(self._written))

    def _encoded(self) -> bytes:
        data = encode_checkpoint(self.value)
        return data[: _FOREIGN.start] + self._foreign + data[_FOREIGN.stop : _SECTOR_SIZE]

    def files(self) -> list[File]:
        """Return the file, to be synced."""
        return [self._file] if self._file is not None else []

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
