"""What a core may ask of the world: Disk, File, Clock, Chance."""

from __future__ import annotations

from typing import Final, Protocol, runtime_checkable

import msgspec

TABLES: Final = "config/"
NAMES_TABLE: Final = "kvConfig.json"
FORMER: Final = ".bak"


def former_path(path: str) -> str:
    """Where a table's former content lies, beside it, as RocketMQ keeps it; empty for a file that
    is no table, of a broker or (kvConfig.json) of a name server."""
    is_table = path.startswith(TABLES) or path == NAMES_TABLE
    return f"{path}{FORMER}" if is_table else ""


class Usage(msgspec.Struct, frozen=True):
    """Room on the disk that holds a path, in bytes."""

    total_size: int
    free_size: int


class SyncNotBegun(OSError):
    """A sync found no descriptor or no memory: nothing was tried, and nothing is lost by it."""


class File(Protocol):
    """One file of fixed length, written and read at positions. Writes are visible to reads at once,
    durable only after `sync`."""

    @property
    def size(self) -> int:
        """Length in bytes; fixed when the file was created or opened."""

    def write(self, position: int, data: bytes) -> None:
        """Put bytes at a position. Raises DiskFull with nothing written when there is no room."""

    def read(self, position: int, size: int) -> bytes:
        """Bytes from a position; fewer only where the file ends."""

    def read_runs(self, runs: bytes, base: int) -> bytes | None:
        """The bytes of runs (base/runs), one behind the other, where the file's first byte has the
        place `base`; None when one of them is not wholly in it."""

    def write_again(self, position: int, size: int) -> None:
        """Write what is read there to its place again, so that the next sync has to bring it to the
        disk, although one before has failed. OSError when the disk does not take it."""

    def reserve(self, position: int, size: int) -> None:
        """Make sure that a later write of this range cannot lack room; DiskFull otherwise."""

    def sync(self) -> None:
        """Make every write so far durable; OSError when the disk says that it could not, of
        which SyncNotBegun may be tried again. After any other, a sync that succeeds says nothing of
        what was written before it: see `write_again`. May be called from another thread than the
        one that writes."""

    def close(self) -> None:
        """Let go of the file; what was not synced may still reach the disk."""


@runtime_checkable
class SparseFile(Protocol):
    """A file that can tell where it is empty, so that this need not be read."""

    def data_from(self, position: int) -> int:
        """The first position from here on that may hold something; the size if none does."""

    def data_end(self) -> int:
        """Behind the last byte that may be something; 0 when all is zeros."""


class Disk(Protocol):
    """The files below one data folder. Paths are relative to it and use `/`."""

    def open(self, path: str, *, size: int, is_sequential: bool = False) -> File:
        """Open a file, created with its full (sparse, zero-filled) length when absent. One that is
        sequential is read from front to back: the system may read ahead in it.

        Raises StorageError when it exists with another length; DiskFull when it cannot be made."""

    def names(self, folder: str) -> list[str]:
        """Sorted names in a folder; an absent folder has none."""

    def size(self, path: str) -> int | None:
        """Length of a file, or None when there is none (or it is a folder)."""

    def modified_ms(self, path: str) -> int:
        """When the file was last written, in ms since the epoch."""

    def read(self, path: str) -> bytes | None:
        """A small file, whole; None when there is none."""

    def replace(self, path: str, data: bytes, *, is_private: bool = False) -> None:
        """Write a small file so that at every moment either the old or the new content is whole
        and, when this returns, the new one is durable. A private one is for its owner's eyes; of
        any other below `config/` the former content stays beside it (see `former_path`)."""

    def remove(self, path: str) -> None:
        """Remove a file or an empty folder; nothing happens when it is absent."""

    def usage(self, path: str) -> Usage:
        """Room on the disk that holds the path."""

    def lock(self, path: str) -> None:
        """Hold an exclusive lock until the process ends; StoreLocked when another holds it."""


class Clock(Protocol):
    """The one source of time."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch; never goes back."""


class Chance(Protocol):
    """The one source of chance; seeded in simulations."""

    def randrange(self, stop: int, /) -> int:
        """A number from 0 up to, and not including, `stop`."""

    def getrandbits(self, count: int, /) -> int:
        """So many random bits."""
