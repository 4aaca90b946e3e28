"""The real Disk: files below one data folder."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from escrowmq.base.ports import DiskUsage, File, former_path
from escrowmq.errors import DiskFull, StorageError, StoreLocked
from escrowmq.net import descriptors
from escrowmq.net.mapped_file import NO_ROOM, MappedFile, SystemCallFile
from escrowmq.net.page_filler import PageFiller

_IN_MEMORY: Final = ("tmpfs", "ramfs")


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


FILE_MODE: Final = 0o600
"""The mode of files: only the broker's own user may read them, because they contain other users'
messages, and keys."""

FOLDER_MODE: Final = 0o700


class FileDisk:
    """The files below one data folder. `elsewhere` maps subfolders to folders on other disks:
    {"commitlog": "/fast/commitlog"}."""

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
        self._open_files_max = open_files_max or descriptors.open_files_max()
        self._open: list[MappedFile] = []
        self._locks: dict[str, int] = {}
        self._new_folders: set[str] = set()
        self.spare = descriptors.SpareDescriptor()
        self.pages = PageFiller()
        self._kinds: dict[str, type[MappedFile]] = {}
        for place in (self.root, *self._elsewhere.values()):
            self._prepare_folder(place)

    def _prepare_folder(self, place: str) -> None:
        """Create a folder for files if it is missing."""
        try:
            os.makedirs(place, FOLDER_MODE, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{place}: {error.strerror}; name a writable folder") from error

    def open(self, path: str, *, size: int, is_sequential: bool = False) -> File:
        """Open a file of this size, creating it if missing (Disk.open)."""
        full = self._full_path(path)
        self._make_folders(os.path.dirname(full))
        try:
            descriptor = os.open(full, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        except FileExistsError:
            found = os.stat(full).st_size
            if found != size:
                raise StorageError(f"{path} has {found} bytes, {size} expected") from None
            return self._make_file(full, size=size, is_new=False, is_sequential=is_sequential)
        except OSError as error:
            raise _disk_error(error, path) from error
        try:
            os.ftruncate(descriptor, size)
        except OSError as error:
            # A file of another size would be refused each time it is opened.
            os.unlink(full)
            raise _disk_error(error, path) from error
        finally:
            os.close(descriptor)
        return self._make_file(full, size=size, is_new=True, is_sequential=is_sequential)

    def _make_file(self, full: str, *, size: int, is_new: bool, is_sequential: bool) -> File:
        place = next((p for p in self._elsewhere.values() if full.startswith(f"{p}/")), self.root)
        kind = self._kinds.get(place)
        if kind is None:
            kind = self._kinds[place] = SystemCallFile if _is_in_memory(place) else MappedFile
        return kind(self, full, size=size, is_new=is_new, is_sequential=is_sequential)

    def names(self, folder: str) -> list[str]:
        """List the names of the files in a folder (Disk.names)."""
        try:
            return sorted(os.listdir(self._full_path(folder)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def size(self, path: str) -> int | None:
        """Return a file's size; None if it does not exist (Disk.size)."""
        try:
            found = os.stat(self._full_path(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return None if stat.S_ISDIR(found.st_mode) else found.st_size

    def modified_ms(self, path: str) -> int:
        """Return a file's modification time (Disk.modified_ms)."""
        return os.stat(self._full_path(path)).st_mtime_ns // 1_000_000

    def read(self, path: str) -> bytes | None:
        """Return a small file's content; None if it does not exist (Disk.read)."""
        full = self._full_path(path)
        if full in self._locks:
            # Closing any descriptor of a file releases this process's locks on it.
            return os.pread(self._locks[full], 4096, 0)
        try:
            with open(full, "rb") as file:
                return file.read()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None

    def replace(self, path: str, data: bytes, *, is_private: bool = False) -> None:
        """Replace a small file durably (Disk.replace). May be called from another thread than the
        other methods."""
        full = self._full_path(path)
        self._make_folders(os.path.dirname(full))
        try:
            with open(full + ".tmp", "wb", opener=_open_private) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            keeps_former = not is_private and former_path(path) and _keep_former(full)
            os.replace(full + ".tmp", full)
            if keeps_former:
                os.replace(full + ".former", self._full_path(former_path(path)))
            self.sync_folders(full)
        except OSError as error:
            with suppress(OSError):
                os.unlink(full + ".tmp")
            raise _disk_error(error, path) from error

    def remove(self, path: str) -> None:
        """Remove a file, or an empty folder; a non-empty folder stays (Disk.remove)."""
        full = self._full_path(path)
        try:
            os.unlink(full)
        except FileNotFoundError:
            pass
        except (IsADirectoryError, PermissionError):
            with suppress(OSError):
                os.rmdir(full)

    def usage(self, path: str) -> DiskUsage:
        """Return the size and use of the file system (Disk.usage). Space reserved for root counts
        as used."""
        found = os.statvfs(
            self.root if not os.path.exists(self._full_path(path)) else self._full_path(path)
        )
        used = found.f_blocks - found.f_bfree
        return DiskUsage(
            total_size=(used + found.f_bavail) * found.f_frsize,
            free_size=found.f_bavail * found.f_frsize,
        )

    def lock(self, path: str) -> None:
        """Lock the folder for this process (Disk.lock), by a POSIX lock on byte 0 of a file with
        the text `lock`, as RocketMQ does."""
        full = self._full_path(path)
        self._make_folders(os.path.dirname(full))
        if full in FileDisk._locked:
            raise StoreLocked(f"{full} is already locked by this process")
        descriptor = os.open(full, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(descriptor)
            raise StoreLocked(
                f"{full} is locked by another process; stop that broker or use another data folder"
            ) from error
        os.pwrite(descriptor, b"lock", 0)
        FileDisk._locked.add(full)
        self._locks[full] = descriptor

    def close(self) -> None:
        """Release every file and lock."""
        self.pages.close()
        for file in list(self._open):
            file.close()
        for full, descriptor in self._locks.items():
            os.close(descriptor)
            FileDisk._locked.discard(full)
        self._locks.clear()
        self.spare.close()

    def note_mapping(self, opened: MappedFile) -> None:
        """Count a file that is about to be mapped. If too many are mapped, unmap one that was not
        used lately."""
        while len(self._open) >= self._open_files_max:
            oldest = self._open.pop(0)
            if oldest.was_used:
                oldest.was_used = False
                self._open.append(oldest)
            else:
                # Put it back into the list, because `close` removes it from there
                # (`note_unmapping`).
                self._open.insert(0, oldest)
                oldest.close()
        self._open.append(opened)

    def note_unmapping(self, closed: MappedFile) -> None:
        """Subtract a file that was unmapped."""
        self._open.remove(closed)

    def sync_folders(self, full: str) -> None:
        """Make the name of a new file durable, and the names of the folders created for it."""
        folder = os.path.dirname(full)
        try:
            self._sync_folder(folder)
            while folder in self._new_folders:
                above = os.path.dirname(folder)
                self._sync_folder(above)
                self._new_folders.discard(folder)
                folder = above
        except FileNotFoundError:
            # The folder was removed since, with its files: no name is left to be made durable.
            self._new_folders.discard(folder)

    def _sync_folder(self, folder: str) -> None:
        with self.spare.open_briefly(folder, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
            os.fsync(descriptor)

    def _full_path(self, path: str) -> str:
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
                os.mkdir(name, FOLDER_MODE)
            except FileExistsError:
                continue
            except OSError as error:
                raise _disk_error(error, name) from error
            self._new_folders.add(name)


def _open_private(path: str, flags: int) -> int:
    """Open a file that only its owner may read; remove other users' rights from an existing
    file."""
    descriptor = os.open(path, flags, FILE_MODE)
    os.fchmod(descriptor, FILE_MODE)
    return descriptor


def _keep_former(full: str) -> bool:
    """Give a file that will be replaced a second name, so that its content is kept. Return whether
    that was done. It becomes the `.bak` only after the new content is stored: until then the
    present `.bak` may be the only good copy. Empty files are not kept, nor is any file on a file
    system without links."""
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


def _disk_error(error: OSError, path: str) -> Exception:
    if error.errno in NO_ROOM:
        return DiskFull(f"{path}: no room on the disk")
    return StorageError(f"{path}: {error.strerror}")
