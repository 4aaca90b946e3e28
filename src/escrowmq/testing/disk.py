"""A disk in memory that can have all the faults of real disks.

Each file keeps its durable content and the writes since its last sync. A crash keeps what the
chosen mode and chance let survive; a plan stops the program at the nth operation; full disks,
failing syncs, missing descriptors, unreadable files and flipped bits can be switched on."""

from __future__ import annotations

import enum
import errno
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager

from escrowmq.base.ports import DiskUsage, File, SyncNotStarted, former_path
from escrowmq.base.runs import join_runs
from escrowmq.errors import DiskFull, StorageError, StoreLocked

_BLOCK_SIZE = 4096
_SECTOR_SIZE = 512
_EMFILE = os.strerror(errno.EMFILE)
_EIO = os.strerror(errno.EIO)
_STAY_MAPPED_CHANCE = 0.4


class SimCrash(BaseException):
    """Raised where the simulated machine stops. It is not an Exception, because nothing may handle
    it."""


class CrashLoss(enum.Enum):
    """What a crash does to unsynced writes."""

    NOTHING = "the process was killed; what it wrote is there, and no more durable than before"
    ALL = "no unsynced write survives"
    PREFIX = "a prefix of each file's writes survives, the last one torn at any byte"
    SECTORS = "each sector has the state after some of the writes to it"
    SUBSET = "any subset of the writes survives"


def is_out_of_descriptors(error: BaseException | None) -> bool:
    """Whether an error means that there are no descriptors left."""
    return isinstance(error, (OSError, StorageError)) and _EMFILE in str(error)


class SimFile:
    """A File in memory."""

    def __init__(self, disk: SimDisk, path: str, size: int) -> None:
        self.size = size
        self.path = path
        self.live = bytearray(size)
        self.durable = bytearray(size)
        self.writes: list[tuple[int, bytes]] = []
        self.blocks: set[int] = set()
        self.is_name_durable = False
        self.is_mapped = False
        """Whether the file is mapped, and so occupies a descriptor. If it is not, its next access
        needs one."""
        self.modified_ms = disk.now_ms
        self._disk = disk
        self._epoch = disk.epoch

    def write(self, position: int, data: bytes) -> None:
        """Write bytes at a position (File.write)."""
        self._access()
        assert 0 <= position <= position + len(data) <= self.size, (self.path, position, len(data))
        self._disk.count_operation("write")
        self._allocate(position, len(data))
        self.live[position : position + len(data)] = data
        self.writes.append((position, bytes(data)))
        self.modified_ms = self._disk.now_ms

    def read(self, position: int, size: int) -> bytes:
        """Return bytes from a position (File.read)."""
        self._access()
        self._disk.reads_count += 1
        return bytes(memoryview(self.live)[position : position + size])

    def read_runs(self, runs: bytes, base: int) -> bytes | None:
        """Read several ranges in one call (File.read_runs)."""
        return join_runs(runs, base, self.size, self.read)

    def whole_mapping(self) -> bytearray:
        """Return the whole content. The native lane reads mapped files like this."""
        self._access()
        self._disk.reads_count += 1
        return self.live

    def write_again(self, position: int, size: int) -> None:
        """Write a range once more after a failed sync (File.write_again)."""
        self._access()
        self._disk.count_operation("write")
        self.writes.append((position, bytes(self.live[position : position + size])))

    def reserve(self, position: int, size: int) -> None:
        """Reserve space for a range (File.reserve)."""
        self._access()
        self._allocate(position, size)

    def sync(self) -> None:
        """Make all writes durable (File.sync)."""
        self._check_usable()
        self._disk.count_operation("sync")
        if self._disk.sync_error is not None:
            # As in Linux, the pages now count as clean: readers see them unchanged, and no later
            # sync writes them to the disk.
            self.writes.clear()
            if self._disk.drops_pages:
                self.live[:] = self.durable
            raise OSError(5, self._disk.sync_error)
        if not self.is_mapped:
            self._disk.require_spare_descriptor(self.path)
        was_new = not self.is_name_durable
        self.make_durable()
        if was_new:  # its folder is opened for a moment
            self.is_name_durable = False
            self._disk.require_spare_descriptor(self.path)
            self.is_name_durable = True
        self._disk.pending_removals.clear()

    def close(self) -> None:
        """Release the file (File.close)."""
        self.is_mapped = False

    def make_durable(self) -> None:
        """Record that all writes are on the disk."""
        for position, data in self.writes:
            self.durable[position : position + len(data)] = data
        self.writes.clear()
        self.is_name_durable = True

    def reopen(self) -> SimFile:
        """Return the same file for use after a restart."""
        if self._epoch != self._disk.epoch:
            self._epoch = self._disk.epoch
            self.is_mapped = False
        return self

    def fork(self, disk: SimDisk) -> SimFile:
        """Return a copy of the file on another disk."""
        copy = SimFile(disk, self.path, 0)
        copy.size = self.size
        copy.live, copy.durable = bytearray(self.live), bytearray(self.durable)
        copy.writes, copy.blocks = list(self.writes), set(self.blocks)
        copy.is_name_durable, copy.modified_ms = self.is_name_durable, self.modified_ms
        return copy

    def _access(self) -> None:
        self._check_usable()
        self._disk.require_readable(self.path)
        if not self.is_mapped:
            self._disk.require_descriptor()
            self.is_mapped = True

    def _check_usable(self) -> None:
        self._disk.raise_if_stopped()
        assert self._epoch == self._disk.epoch, f"{self.path} was opened before the crash"

    def _allocate(self, position: int, size: int) -> None:
        wanted = set(range(position // _BLOCK_SIZE, -(-(position + size) // _BLOCK_SIZE)))
        wanted -= self.blocks
        disk = self._disk
        if disk.room is not None and disk.used + len(wanted) * _BLOCK_SIZE > disk.room:
            raise DiskFull(f"{self.path}: {len(wanted)} blocks wanted")
        self.blocks |= wanted
        disk.used += len(wanted) * _BLOCK_SIZE


class DescriptorShortage(enum.Enum):
    """How far the process has used up its descriptors (EMFILE)."""

    SPARE_LEFT = "the one that is kept for syncs is there"
    ALL_GONE = "somebody took that one too"


class SimDisk:
    """A Disk in memory, with faults; the module describes them."""

    def __init__(self) -> None:
        self.files: dict[str, SimFile] = {}
        self.small: dict[str, bytes] = {}
        self.private: set[str] = set()
        """Paths of small files that were written for their owner alone."""
        self.epoch = 0
        self.now_ms = 0
        self.room: int | None = None
        self.used = 0
        self.used_percent = 10
        self.sync_error: str | None = None
        self.drops_pages = False
        """Whether a file whose sync failed loses its unsynced pages, as on some file systems."""
        self.shortage: DescriptorShortage | None = None
        self.unreadable: set[str] = set()
        """Paths of files that the disk can no longer read, opened or not."""
        self.stop_at: int | None = None
        self.steps_count = self.reads_count = 0
        self.counts: dict[str, int] = {}
        self.pending_removals: dict[str, SimFile | bytes] = {}
        self._locks: set[str] = set()
        self._is_stopped = False

    # -- Disk -----------------------------------------------------------------------------------

    def open(self, path: str, *, size: int, is_sequential: bool = False) -> File:
        """Open a file of this size, creating it if missing (Disk.open)."""
        self.raise_if_stopped()
        self._require_openable(path)
        found = self.files.get(path)
        if found is None:
            if path in self.small:
                found = self._open_small_file(path)
            else:
                if self.room is not None and self.used >= self.room:
                    raise DiskFull(f"{path} cannot be made")
                self.count_operation("create")
                found = self.files[path] = SimFile(self, path, size)
        if found.size != size:
            raise StorageError(f"{path} has {found.size} bytes, {size} expected")
        return found.reopen()

    def names(self, folder: str) -> list[str]:
        """List the names of the files in a folder (Disk.names)."""
        self.raise_if_stopped()
        self.require_descriptor()
        prefix = f"{folder}/" if folder else ""
        paths = [*self.files, *self.small]
        found = {path[len(prefix) :].split("/")[0] for path in paths if path.startswith(prefix)}
        return sorted(found)

    def size(self, path: str) -> int | None:
        """Return a file's size; None if it does not exist (Disk.size)."""
        self.raise_if_stopped()
        if path in self.files:
            return self.files[path].size
        return len(self.small[path]) if path in self.small else None

    def modified_ms(self, path: str) -> int:
        """Return a file's modification time (Disk.modified_ms); 0 for small files, for which none
        is kept."""
        return 0 if path in self.small else self.files[path].modified_ms

    def read(self, path: str) -> bytes | None:
        """Return a small file's content; None if it does not exist (Disk.read)."""
        self.raise_if_stopped()
        self.require_descriptor()
        if path in self.files:
            return bytes(self.files[path].live)
        return self.small.get(path)

    def replace(self, path: str, data: bytes, *, is_private: bool = False) -> None:
        """Replace a small file durably (Disk.replace)."""
        self.raise_if_stopped()
        self._require_openable(path)
        self._require_space(path, len(data))
        self.count_operation("replace")
        former = self.small.get(path)
        if former and former_path(path) and not is_private:
            self.small[former_path(path)] = former
        self.small[path] = bytes(data)
        (self.private.add if is_private else self.private.discard)(path)
        self.pending_removals.pop(path, None)

    def _require_space(self, path: str, size: int) -> None:
        """Raise DiskFull unless a small file fits beside the one that it will replace."""
        count = -(-size // _BLOCK_SIZE)
        if self.room is not None and self.used + count * _BLOCK_SIZE > self.room:
            raise DiskFull(f"{path}: {count} blocks wanted")

    def remove(self, path: str) -> None:
        """Remove a file (Disk.remove). A crash right after it may undo that."""
        self.raise_if_stopped()
        if path in self.files:
            self.count_operation("remove")
            found = self.files.pop(path)
            self.used -= len(found.blocks) * _BLOCK_SIZE
            self.pending_removals[path] = found
        elif path in self.small:
            self.count_operation("remove")
            self.pending_removals[path] = self.small.pop(path)

    def usage(self, path: str) -> DiskUsage:
        """Return the size and use of the disk (Disk.usage)."""
        del path
        if self.room is not None:
            return DiskUsage(total_size=self.room, free_size=max(self.room - self.used, 0))
        return DiskUsage(total_size=100, free_size=100 - self.used_percent)

    def lock(self, path: str) -> None:
        """Lock the folder (Disk.lock) until the next crash, kill or restart."""
        self.raise_if_stopped()
        if path in self._locks:
            raise StoreLocked(f"{path} is held")
        self._locks.add(path)
        self.small.setdefault(path, b"lock")

    def fork(self) -> SimDisk:
        """Return a disk with the same content, to try out what might happen to it; its planned
        faults are not copied."""
        copy = SimDisk()
        copy.epoch, copy.now_ms, copy.room, copy.used = self.epoch, self.now_ms, None, self.used
        copy.small = dict(self.small)
        copies = {id(file): file.fork(copy) for file in self.files.values()}
        copy.files = {path: copies[id(file)] for path, file in self.files.items()}
        for path, removed in self.pending_removals.items():
            copy.pending_removals[path] = (
                removed if isinstance(removed, bytes) else removed.fork(copy)
            )
        return copy

    # -- faults ---------------------------------------------------------------------------------

    def count_operation(self, kind: str) -> None:
        """Count an operation; if it is the planned one, stop the machine before it takes effect."""
        self.steps_count += 1
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if self.stop_at is not None and self.steps_count >= self.stop_at:
            self._is_stopped = True
            raise SimCrash(f"stopped at operation {self.steps_count}, a {kind}")

    def exhaust_descriptors(
        self, shortage: DescriptorShortage, chance: random.Random | None = None
    ) -> None:
        """Make opening files fail from now on, for lack of descriptors. Some mapped files lose
        their mapping too, because a program near the limit unmaps files; all of them without
        `chance`."""
        self.shortage = shortage
        for file in self.files.values():
            stays = chance is not None and chance.random() < _STAY_MAPPED_CHANCE
            file.is_mapped = file.is_mapped and stays

    @contextmanager
    def without_shortage(self) -> Iterator[None]:
        """Let a test inspect the disk inside the block, without needing or using up descriptors."""
        shortage, self.shortage = self.shortage, None
        closed = [] if shortage is None else [f for f in self.files.values() if not f.is_mapped]
        try:
            yield
        finally:
            self.shortage = shortage
            for file in closed:
                file.is_mapped = False

    def require_descriptor(self) -> None:
        """Raise the system's error for opening a file, if descriptors have run out."""
        if self.shortage is not None:
            raise OSError(errno.EMFILE, _EMFILE)

    def require_spare_descriptor(self, path: str) -> None:
        """Raise the system's error for a sync if even the descriptor kept in reserve for syncs
        (net/descriptors.Spare) is gone."""
        if self.shortage is DescriptorShortage.ALL_GONE:
            raise SyncNotStarted(errno.EMFILE, f"{_EMFILE}: {path}")

    def require_readable(self, path: str) -> None:
        """Raise the disk's error for an unreadable file."""
        if path in self.unreadable:
            raise StorageError(f"{path}: {_EIO}")

    def _require_openable(self, path: str) -> None:
        self.require_readable(path)
        if self.shortage is not None:
            raise StorageError(f"{path}: {_EMFILE}") from OSError(errno.EMFILE, _EMFILE)

    def raise_if_stopped(self) -> None:
        """Raise if the machine has stopped."""
        if self._is_stopped:
            raise SimCrash("the machine has stopped")

    def restart(self) -> None:
        """Prepare the disk for the next start after the program has ended. Everything written is
        still there."""
        self.crash(random.Random(0), CrashLoss.NOTHING)

    def crash(self, chance: random.Random, loss: CrashLoss) -> None:
        """Lose unsynced writes, as `loss` and `chance` decide, and prepare the disk for the next
        start."""
        self.stop_at = None
        self._is_stopped = False
        self._locks.clear()
        self.epoch += 1
        if loss is CrashLoss.NOTHING:
            return
        for path, found in [*self.pending_removals.items()]:
            if chance.random() < 0.5:
                self._undo_removal(path, found)
        self.pending_removals.clear()
        for path, file in [*self.files.items()]:
            if not file.is_name_durable and chance.random() < 0.5:
                del self.files[path]
                self.used -= len(file.blocks) * _BLOCK_SIZE
                continue
            self._lose_unsynced(file, chance, loss)

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """Flip one bit of a file, on the disk and in memory."""
        if path in self.small:
            data = bytearray(self.small[path])
            data[position] ^= 1 << bit
            self.small[path] = bytes(data)
            return
        for image in (self.files[path].live, self.files[path].durable):
            image[position] ^= 1 << bit

    def overwrite(self, path: str, position: int, data: bytes) -> None:
        """Change bytes of a file unnoticed."""
        for image in (self.files[path].live, self.files[path].durable):
            image[position : position + len(data)] = data

    def _undo_removal(self, path: str, found: SimFile | bytes) -> None:
        if isinstance(found, bytes):
            self.small.setdefault(path, found)
        elif path not in self.files:
            self.files[path] = found
            self.used += len(found.blocks) * _BLOCK_SIZE

    def _open_small_file(self, path: str) -> SimFile:
        data = self.small.pop(path)
        file = self.files[path] = SimFile(self, path, len(data))
        file.live[:] = file.durable[:] = data
        file.is_name_durable = True
        return file

    def _lose_unsynced(self, file: SimFile, chance: random.Random, loss: CrashLoss) -> None:
        writes, file.writes = file.writes, []
        if loss is CrashLoss.PREFIX:
            kept = chance.randint(0, len(writes))
            for position, data in writes[:kept]:
                file.durable[position : position + len(data)] = data
            if kept < len(writes):
                position, data = writes[kept]
                size = chance.randint(0, len(data))
                file.durable[position : position + size] = data[:size]
        elif loss is CrashLoss.SUBSET:
            for position, data in writes:
                if chance.random() < 0.5:
                    file.durable[position : position + len(data)] = data
        elif loss is CrashLoss.SECTORS:
            _lose_sectors(file.durable, writes, chance)
        file.live[:] = file.durable
        file.is_name_durable = True


def _lose_sectors(
    durable: bytearray, writes: list[tuple[int, bytes]], chance: random.Random
) -> None:
    """Set each sector to its state after a random number of its writes."""
    touching: dict[int, list[tuple[int, bytes]]] = {}
    for position, data in writes:
        for sector in range(position // _SECTOR_SIZE, -(-(position + len(data)) // _SECTOR_SIZE)):
            touching.setdefault(sector, []).append((position, data))
    for sector, found in touching.items():
        first, last = sector * _SECTOR_SIZE, (sector + 1) * _SECTOR_SIZE
        for position, data in found[: chance.randint(0, len(found))]:
            begin, end = max(position, first), min(position + len(data), last)
            durable[begin:end] = data[begin - position : end - position]
