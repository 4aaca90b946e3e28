"""A core's interfaces to the outside: Disk, File, Clock, Chance."""

from __future__ import annotations

from typing import Final, Protocol, runtime_checkable

import msgspec

TABLES: Final = "config/"
NAMES_TABLE: Final = "kvConfig.json"
FORMER: Final = ".bak"


def former_path(path: str) -> str:
    """Return the path at which a table's previous content is stored, beside the table, as in
    RocketMQ. Empty for a file that is not a table of a broker or (kvConfig.json) of a name
    server."""
    is_table = path.startswith(TABLES) or path == NAMES_TABLE
    return f"{path}{FORMER}" if is_table else ""


class DiskUsage(msgspec.Struct, frozen=True):
    """Space on the disk that holds a path, in bytes."""

    total_size: int
    free_size: int


class SyncNotStarted(OSError):
    """Raised if a sync was not started, because there was no descriptor or no memory. Nothing is
    lost."""


class File(Protocol):
    """One file of fixed length, written and read at positions. Writes are immediately visible to
    reads, but durable only after `sync`."""

    @property
    def size(self) -> int:
        """Return the length in bytes, which is fixed when the file is created or opened."""

    def write(self, position: int, data: bytes) -> None:
        """Write bytes at a position. Raises DiskFull, with nothing written, if there is no
        space."""

    def read(self, position: int, size: int) -> bytes:
        """Return bytes from a position; fewer only at the end of the file."""

    def read_runs(self, runs: bytes, base: int) -> bytes | None:
        """Return the bytes of several ranges (base/runs), concatenated; the file's first byte is at
        position `base`. None if a range is not completely inside."""

    def write_again(self, position: int, size: int) -> None:
        """Write the bytes at a position once more, so that the next sync must write them to the
        disk, although an earlier sync failed. Raises OSError if the disk refuses."""

    def reserve(self, position: int, size: int) -> None:
        """Ensure that a later write of this range finds space; raises DiskFull otherwise."""

    def sync(self) -> None:
        """Make all writes so far durable. May be called from another thread than the one that
        writes.

        Raises OSError if the disk fails. A SyncNotStarted may be retried. After any other error, a
        later sync that succeeds proves nothing about earlier writes: see `write_again`.
        """

    def close(self) -> None:
        """Release the file; unsynced writes may still reach the disk."""


@runtime_checkable
class SparseFile(Protocol):
    """A file that knows where it is empty, so that these parts need not be read."""

    def next_data_position(self, position: int) -> int:
        """Return the first position from here on that may contain data; the size if there is
        none."""

    def data_end(self) -> int:
        """Return the end of the last data; 0 if all is zeros."""


class Disk(Protocol):
    """The files below one data folder. Paths are relative to it and use `/`."""

    def open(self, path: str, *, size: int, is_sequential: bool = False) -> File:
        """Open a file, created with its full (sparse, zero-filled) length if absent. A sequential
        one is read from front to back: the system may read ahead.

        Raises StorageError if it exists with another length; DiskFull if it cannot be created."""

    def names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder; none if it does not exist."""

    def size(self, path: str) -> int | None:
        """Return the length of a file; None if there is none (or it is a folder)."""

    def modified_ms(self, path: str) -> int:
        """Return when the file was last written, in ms since the epoch."""

    def read(self, path: str) -> bytes | None:
        """Return a small file as a whole; None if there is none."""

    def replace(self, path: str, data: bytes, *, is_private: bool = False) -> None:
        """Replace a small file durably. At every moment, either the old or the new content is
        complete. A private file is readable only by its owner. For other files below `config/`, the
        previous content is kept beside them (see `former_path`)."""

    def remove(self, path: str) -> None:
        """Remove a file or an empty folder; does nothing if it is absent."""

    def usage(self, path: str) -> DiskUsage:
        """Return the space on the disk that holds the path."""

    def lock(self, path: str) -> None:
        """Hold an exclusive lock until the process ends; raises StoreLocked if another process
        holds it."""


class Clock(Protocol):
    """The only source of time for a core."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch; never goes back."""


class RandomSource(Protocol):
    """The only source of randomness for a core; seeded in simulations."""

    def randrange(self, stop: int, /) -> int:
        """Return a number from 0 up to, and not including, `stop`."""

    def getrandbits(self, count: int, /) -> int:
        """Return a number of random bits."""
