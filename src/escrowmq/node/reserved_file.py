"""A small file that can be replaced on a full disk."""

from __future__ import annotations

import contextlib
import os
from typing import Final

from escrowmq.net.disk import FileDisk

NEXT: Final = ".next"
"""What the name of the file has behind it that is to be the next one."""

_SIZE_MIN: Final = 4096


class ReservedFile:
    """Has the space for its next content beside it, and renames that file to its own name."""

    def __init__(self, disk: FileDisk, path: str) -> None:
        self._disk = disk
        self._path = f"{disk.root}/{path}"
        self._next = f"{self._path}{NEXT}"

    def write(self, data: bytes) -> None:
        """Replace the content durably. Raises OSError; the file has its former content then."""
        descriptor = self._open_next()
        try:
            os.pwrite(descriptor, data, 0)
            os.ftruncate(descriptor, len(data))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(self._next, self._path)
        self._reserve(2 * len(data))
        self._disk.sync_folders(self._path)

    def _open_next(self) -> int:
        return os.open(self._next, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _reserve(self, size: int) -> None:
        """Take space for the next content, if there is any."""
        descriptor = self._open_next()
        try:
            with contextlib.suppress(OSError):
                os.posix_fallocate(descriptor, 0, max(_SIZE_MIN, size))
        finally:
            os.close(descriptor)
