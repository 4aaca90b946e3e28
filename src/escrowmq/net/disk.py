"""The real Disk: files below one data folder, mapped into memory, made durable by fdatasync.

A write to a mapped page that has no block on the disk would kill the process (SIGBUS) when the
disk is full. So blocks are allocated ahead of every write; a full disk is then a DiskFull.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import resource
import stat
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from escrowmq.base.ports import File, Usage, former_path
from escrowmq.errors import DiskFull, StorageError, StoreLocked

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
_BLOCK_BITS: Final = 16
_BLOCK_SIZE: Final = 1 << _BLOCK_BITS
_AHEAD_SIZE_MAX: Final = 16 * 1024 * 1024
_OPEN_FILES_MIN: Final = 64
_OPEN_FILES_MAX: Final = 2048
_IN_MEMORY: Final = ("tmpfs", "ramfs")
_FILES_PER_MAP: Final = 4  # mmap keeps a descriptor of its own; half is left to connections


def _open_files_max() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return min(max(soft // _FILES_PER_MAP, _OPEN_FILES_MIN), _OPEN_FILES_MAX)


def _is_in_memory(folder: str) -> bool:
    device = os.stat(folder).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
            found = [line.partition(" - ") for line in mounts]
    except OSError:
        return False  # not Linux
    kinds = [kind.split()[0] for mount, _, kind in found if mount.split()[2] == number]
    return bool(kinds) and kinds[0] in _IN_MEMORY


class MappedFile:
    """A File in memory; unmapped when too many others are open, and mapped again when touched.

    Allocated and therefore safe to write: the range [_ready_from, _ready_end), which grows with
    writes that continue it, and single blocks elsewhere (an index file's hash slots)."""

    __slots__ = (
        "_ahead_size", "_blocks", "_descriptor", "_disk", "_guard", "_is_new", "_is_sequential",
        "_map", "_path", "_ready_end", "_ready_from", "size", "was_used",
    )  # fmt: skip

    def __init__(
        self, disk: FileDisk, path: str, *, size: int, is_new: bool, is_sequential: bool = False
    ) -> None:
        self.size = size
        self._is_sequential = is_sequential
        self.was_used = True
        self._disk = disk
        self._path = path
        self._is_new = is_new
        self._descriptor = -1
        self._map: mmap.mmap | None = None
        self._ready_from = self._ready_end = 0
        self._ahead_size = _BLOCK_SIZE
        self._blocks: set[int] = set()
        self._guard = threading.Lock()

    def write(self, position: int, data: bytes) -> None:
        """Put bytes at a position; see File.write."""
        end = position + len(data)
        if position < self._ready_from or end > self._ready_end:
            self._make_ready(position, end)
        self.was_used = True
        (self._map or self._open())[position:end] = data

    def read(self, position: int, size: int) -> bytes:
        """Bytes from a position; see File.read."""
        self.was_used = True
        return (self._map or self._open())[position : position + size]

    def read_many(self, positions: list[int], size: int) -> bytes:
        """Pieces of one size from many positions, joined."""
        self.was_used = True
        mapped = self._map or self._open()
        return b"".join([mapped[at : at + size] for at in positions])

    def write_many(self, pieces: Sequence[tuple[int, bytes]]) -> None:
        """Put many small pieces at their positions; none crosses a block's border. DiskFull, with
        nothing written, when there is no room for one."""
        self.was_used = True
        mapped = self._map or self._open()
        for block in {at >> _BLOCK_BITS for at, _ in pieces} - self._blocks:
            self._allocate_block(block)
        for at, piece in pieces:
            mapped[at : at + len(piece)] = piece

    def reserve(self, position: int, size: int) -> None:
        """Allocate a range; see File.reserve."""
        assert 0 <= position <= position + size <= self.size, (position, size, self.size)
        end = position + size
        if self._ready_from <= position and end <= self._ready_end:
            return
        self._allocate(position, end)
        if self._ready_from <= position <= self._ready_end:
            self._ready_end = end
        elif self._ready_end == 0:
            self._ready_from, self._ready_end = position, end

    def data_from(self, position: int) -> int:
        """The first position from here on that may hold something; `size` when all is zeros."""
        if self._map is None:
            self._open()
        try:
            return min(os.lseek(self._descriptor, position, os.SEEK_DATA), self.size)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return self.size
            return position

    def data_end(self) -> int:
        """Behind the last byte that may be something; 0 when all is zeros."""
        if self._map is None:
            self._open()
        end = 0
        while end < self.size:
            try:
                begin = os.lseek(self._descriptor, end, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    break
                return self.size
            end = min(os.lseek(self._descriptor, begin, os.SEEK_HOLE), self.size)
        return end

    def sync(self) -> None:
        """fdatasync, which on Linux covers what was written through the map; see File.sync."""
        with self._guard:
            try:
                if self._descriptor >= 0:
                    descriptor = os.dup(self._descriptor)
                else:
                    descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                return  # removed since: nothing is left that could be durable
            is_new, self._is_new = self._is_new, False
        try:
            os.fdatasync(descriptor)
            if is_new:
                self._disk.sync_folders(self._path)
        except OSError:
            self._is_new = is_new
            raise
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Unmap; a later touch maps the file again."""
        with self._guard:
            if self._map is not None:
                self._map.close()
                self._map = None
                os.close(self._descriptor)
                self._descriptor = -1
                self._disk.forget(self)

    def _open(self) -> mmap.mmap:
        self._disk.make_room(self)
        with self._guard:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            try:
                mapped = mmap.mmap(descriptor, self.size)
                if not self._is_sequential:
                    # The first touch of a file would read 8 MB ahead, or fill in as many zeros:
                    # 2 ms, where this takes 0.02, and a topic of 1024 queues has as many files.
                    mapped.madvise(mmap.MADV_RANDOM)
                self._map = mapped
            except BaseException:
                os.close(descriptor)
                raise
            self._descriptor = descriptor
        return self._map

    def _make_ready(self, position: int, end: int) -> None:
        """Slow path of `write`: allocate what it needs, and some more where writes continue."""
        if end > self.size:
            raise StorageError(f"{self._path}: write up to {end} in a file of {self.size} bytes")
        first, last = position >> _BLOCK_BITS, (end - 1) >> _BLOCK_BITS
        if first in self._blocks and (first == last or last in self._blocks):
            return
        is_next = self._ready_from <= position <= self._ready_end
        if is_next or self._ready_end == 0:
            until = min(max(end, self._ready_end) + self._ahead_size, self.size)
            try:
                self._allocate(position, until)
            except DiskFull:
                until = end  # perhaps there is room for just this
                self._allocate(position, until)
            if not is_next or self._ready_end == 0:
                self._ready_from = position
            self._ready_end = until
            self._ahead_size = min(2 * self._ahead_size, _AHEAD_SIZE_MAX)
            return
        for block in range(first, last + 1):
            self._allocate_block(block)

    def _allocate_block(self, block: int) -> None:
        self._allocate(block << _BLOCK_BITS, min((block + 1) << _BLOCK_BITS, self.size))
        self._blocks.add(block)

    def _allocate(self, position: int, end: int) -> None:
        if self._map is None:
            self._open()
        try:
            os.posix_fallocate(self._descriptor, position, end - position)
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise DiskFull(f"{self._path}: no room for {end - position} bytes") from error
            raise


class CalledFile(MappedFile):
    """A File on a file system in memory (tmpfs), read by calls: there the mere reading of a hole
    through a map takes a page, and kills the process when there is no room."""

    __slots__ = ()

    def read(self, position: int, size: int) -> bytes:
        """Bytes from a position; see File.read."""
        self.was_used = True
        if self._map is None:
            self._open()
        return os.pread(self._descriptor, size, position)

    def read_many(self, positions: list[int], size: int) -> bytes:
        """Pieces of one size from many positions, joined."""
        return b"".join([self.read(at, size) for at in positions])


class FileDisk:
    """The files below one data folder. `elsewhere` names the folders in it whose files lie at other
    places, on a disk of their own: {"commitlog": "/fast/commitlog"}."""

    _locked: Final[set[str]] = set()  # POSIX locks do not exclude the process that holds them

    def __init__(
        self,
        root: str,
        *,
        open_files_max: int | None = None,
        elsewhere: Mapping[str, str] | None = None,
    ) -> None:
        self.root = os.path.realpath(root)
        self._elsewhere = {
            folder: os.path.realpath(place) for folder, place in (elsewhere or {}).items()
        }
        self._open_files_max = open_files_max or _open_files_max()
        self._open: list[MappedFile] = []
        self._locks: dict[str, int] = {}
        self._new_folders: set[str] = set()
        self._kinds: dict[str, type[MappedFile]] = {}
        for place in (self.root, *self._elsewhere.values()):
            self._prepare(place)

    def _prepare(self, place: str) -> None:
        """Make sure that a folder is there that files are kept below."""
        try:
            os.makedirs(place, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{place}: {error.strerror}; name a folder to write to") from error

    def open(self, path: str, *, size: int, is_sequential: bool = False) -> File:
        """See Disk.open."""
        full = self._full(path)
        self._make_folders(os.path.dirname(full))
        try:
            descriptor = os.open(full, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            found = os.stat(full).st_size
            if found != size:
                raise StorageError(f"{path} has {found} bytes, {size} expected") from None
            return self._file(full, size=size, is_new=False, is_sequential=is_sequential)
        except OSError as error:
            raise _translated(error, path) from error
        try:
            os.ftruncate(descriptor, size)
        except OSError as error:
            os.unlink(full)
            raise _translated(error, path) from error
        finally:
            os.close(descriptor)
        return self._file(full, size=size, is_new=True, is_sequential=is_sequential)

    def _file(self, full: str, *, size: int, is_new: bool, is_sequential: bool) -> File:
        place = next((p for p in self._elsewhere.values() if full.startswith(f"{p}/")), self.root)
        kind = self._kinds.get(place)
        if kind is None:
            kind = self._kinds[place] = CalledFile if _is_in_memory(place) else MappedFile
        return kind(self, full, size=size, is_new=is_new, is_sequential=is_sequential)

    def names(self, folder: str) -> list[str]:
        """See Disk.names."""
        try:
            return sorted(os.listdir(self._full(folder)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def size(self, path: str) -> int | None:
        """See Disk.size."""
        try:
            found = os.stat(self._full(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return None if stat.S_ISDIR(found.st_mode) else found.st_size

    def modified_ms(self, path: str) -> int:
        """See Disk.modified_ms."""
        return os.stat(self._full(path)).st_mtime_ns // 1_000_000

    def read(self, path: str) -> bytes | None:
        """See Disk.read."""
        full = self._full(path)
        if full in self._locks:
            # Closing any descriptor of a file lets go of this process's locks on it.
            return os.pread(self._locks[full], 4096, 0)
        try:
            with open(full, "rb") as file:
                return file.read()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None

    def replace(self, path: str, data: bytes, *, is_private: bool = False) -> None:
        """See Disk.replace; may be called from another thread than the other methods."""
        full = self._full(path)
        folder = os.path.dirname(full)
        os.makedirs(folder, exist_ok=True)
        try:
            with open(full + ".tmp", "wb", opener=_private if is_private else None) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            keeps_former = not is_private and former_path(path) and _set_aside(full)
            os.replace(full + ".tmp", full)
            if keeps_former:
                os.replace(full + ".former", self._full(former_path(path)))
        except OSError as error:
            with suppress(OSError):
                os.unlink(full + ".tmp")
            raise _translated(error, path) from error
        _sync_folder(folder)

    def remove(self, path: str) -> None:
        """See Disk.remove. A folder that is not empty stays."""
        full = self._full(path)
        try:
            os.unlink(full)
        except FileNotFoundError:
            pass
        except (IsADirectoryError, PermissionError):
            with suppress(OSError):
                os.rmdir(full)

    def usage(self, path: str) -> Usage:
        """See Disk.usage. Room that only root may use counts as used."""
        found = os.statvfs(self.root if not os.path.exists(self._full(path)) else self._full(path))
        used = found.f_blocks - found.f_bfree
        return Usage(
            total_size=(used + found.f_bavail) * found.f_frsize,
            free_size=found.f_bavail * found.f_frsize,
        )

    def lock(self, path: str) -> None:
        """See Disk.lock: a POSIX lock on byte 0 of a file that says `lock`, as the peer does."""
        full = self._full(path)
        self._make_folders(os.path.dirname(full))
        if full in FileDisk._locked:
            raise StoreLocked(f"{full} is held by this process already")
        descriptor = os.open(full, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(descriptor)
            raise StoreLocked(
                f"{full} is held by another process; stop that broker or use another data folder"
            ) from error
        os.pwrite(descriptor, b"lock", 0)
        FileDisk._locked.add(full)
        self._locks[full] = descriptor

    def close(self) -> None:
        """Let go of every file and lock."""
        for file in list(self._open):
            file.close()
        for full, descriptor in self._locks.items():
            os.close(descriptor)
            FileDisk._locked.discard(full)
        self._locks.clear()

    def make_room(self, opened: MappedFile) -> None:
        """Take note of a file about to be mapped; unmap one not used lately when too many are."""
        while len(self._open) >= self._open_files_max:
            oldest = self._open.pop(0)
            if oldest.was_used:
                oldest.was_used = False
                self._open.append(oldest)
            else:
                self._open.insert(0, oldest)
                oldest.close()
        self._open.append(opened)

    def forget(self, closed: MappedFile) -> None:
        """A file was unmapped."""
        self._open.remove(closed)

    def sync_folders(self, full: str) -> None:
        """Make a new file's name durable, and those of the folders made for it."""
        folder = os.path.dirname(full)
        _sync_folder(folder)
        while folder in self._new_folders:
            self._new_folders.discard(folder)
            folder = os.path.dirname(folder)
            _sync_folder(folder)

    def _full(self, path: str) -> str:
        if self._elsewhere:
            folder, _, rest = path.partition("/")
            place = self._elsewhere.get(folder)
            if place is not None:
                return f"{place}/{rest}" if rest else place
        return f"{self.root}/{path}" if path else self.root

    def _make_folders(self, folder: str) -> None:
        missing = []
        while not os.path.isdir(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        for name in reversed(missing):
            try:
                os.mkdir(name)
            except FileExistsError:
                continue
            except OSError as error:
                raise _translated(error, name) from error
            self._new_folders.add(name)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _set_aside(full: str) -> bool:
    """Give a file a second name, so that it outlives its replacement. It takes the place of the
    `.bak` only when the new content is there: what is replaced may be torn, and the `.bak` the one
    good copy. Empty ones are not kept; a file system without links keeps none."""
    aside = full + ".former"
    try:
        if not os.stat(full).st_size:
            return False
        with suppress(FileNotFoundError):
            os.unlink(aside)
        os.link(full, aside)
    except OSError:
        return False
    return True


def _translated(error: OSError, path: str) -> Exception:
    if error.errno in _NO_ROOM:
        return DiskFull(f"{path}: no room on the disk")
    return StorageError(f"{path}: {error.strerror}")


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
