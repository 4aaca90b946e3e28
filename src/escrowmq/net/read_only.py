"""A read-only data folder: nothing in it is created, changed or removed."""

from __future__ import annotations

import errno
import os

from escrowmq.base.ports import File
from escrowmq.base.runs import join_runs
from escrowmq.errors import SegmentMissing, StorageError
from escrowmq.net.disk import FileDisk


class _ReadOnlyFile:
    """A File that is never written."""

    def __init__(self, path: str, size: int) -> None:
        self.size = size
        self._path = path

    def read(self, position: int, size: int) -> bytes:
        """Return bytes from a position (File.read)."""
        with open(self._path, "rb") as file:
            return os.pread(file.fileno(), size, position)

    def read_runs(self, runs: bytes, base: int) -> bytes | None:
        """Read several ranges in one call (File.read_runs)."""
        return join_runs(runs, base, self.size, self.read)

    def next_data_position(self, position: int) -> int:
        """Return the first position from here on that may contain data (as `MappedFile` does)."""
        with open(self._path, "rb") as file:
            try:
                return os.lseek(file.fileno(), position, os.SEEK_DATA)
            except OSError as error:
                return self.size if error.errno == errno.ENXIO else position

    def write(self, position: int, data: bytes) -> None:
        """Never called, because nothing is written to a read-only folder."""
        raise StorageError(f"{self._path} is open for reading only")

    def write_again(self, position: int, size: int) -> None:
        """Never called, because nothing is written to a read-only folder."""
        raise StorageError(f"{self._path} is open for reading only")

    def reserve(self, position: int, size: int) -> None:
        """Never called, because nothing is written to a read-only folder."""
        raise StorageError(f"{self._path} is open for reading only")

    def sync(self) -> None:
        """Do nothing: nothing was written."""

    def close(self) -> None:
        """Do nothing: no resources are held."""


class ReadOnlyDisk(FileDisk):
    """The files of a data folder, read-only: nothing is created, changed or removed."""

    def _prepare_folder(self, place: str) -> None:
        if not os.path.isdir(place):
            raise StorageError(f"{place} is not a folder")

    def open(self, path: str, *, size: int, is_sequential: bool = False) -> File:
        """Open an existing file."""
        found = self.size(path)
        if found is None:
            raise SegmentMissing(f"{path} does not exist")
        if found != size:
            raise StorageError(f"{path} has {found} bytes, {size} expected")
        return _ReadOnlyFile(self._full_path(path), size)

    def replace(self, path: str, data: bytes, *, is_private: bool = False) -> None:
        """Never called, because nothing is written to a read-only folder."""
        raise StorageError(f"{path} is open for reading only")

    def remove(self, path: str) -> None:
        """Do nothing: files that a loader would remove are left out of its view."""

    def lock(self, path: str) -> None:
        """Do nothing: reading needs no lock."""
