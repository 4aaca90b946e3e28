"""A small file that can be replaced on a full disk."""

from __future__ import annotations

import contextlib
import os
from typing import Final

from escrowmq.net.disk import FileDisk

RESERVE_SUFFIX: Final = ".next"
"""Suffix of the file that reserves space for the next content."""

_SIZE_MIN: Final = 4096


class ReservedFile:
    """A small file, with a second file beside it that reserves space for the next content. A write
    fills the second file and renames it."""

    def __init__(self, disk: FileDisk, path: str) -> None:
        self._disk = disk
        self._path = f"{disk.root}/{path}"
        self._next = f"{self._path}{RESERVE_SUFFIX}"

    def write(self, data: bytes) -> None:
        """Replace the content durably. If it raises OSError, the file still has its former
        content."""
        descriptor = self._open_reserve()
        try:
            os.pwrite(descriptor, data, 0)
            os.ftruncate(descriptor, len(data))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(self._next, self._path)
        self._reserve(2 * len(data))
        self._disk.sync_folders(self._path)

    def _open_reserve(self) -> int:
        return os.open(self._next, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _reserve(self, size: int) -> None:
        """Reserve space for the next content, if the disk has any."""
        descriptor = self._open_reserve()
        try:
            with contextlib.suppress(OSError):
                os.posix_fallocate(descriptor, 0, max(_SIZE_MIN, size))
        finally:
            os.close(descriptor)
