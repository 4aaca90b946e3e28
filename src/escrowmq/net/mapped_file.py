"""One file of the real disk, mapped into memory, made durable by fdatasync.

A write to a mapped page that has no block on the disk would kill the process (SIGBUS) when the
disk is full. So blocks are allocated ahead of every write; a full disk is then a DiskFull.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
from collections.abc import Sequence
from typing import Final, Protocol

from escrowmq.base.runs import join_runs, slice_runs
from escrowmq.errors import DiskFull, StorageError
from escrowmq.lane import native
from escrowmq.net.descriptors import SpareDescriptor
from escrowmq.net.page_filler import PageFiller

NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
_BLOCK_BITS: Final = 16
_BLOCK_SIZE: Final = 1 << _BLOCK_BITS
_AGAIN_SIZE: Final = 1024 * 1024
_ZEROS: Final = bytes(_AGAIN_SIZE)
_AHEAD_SIZE_MAX: Final = 16 * 1024 * 1024


class MappingDisk(Protocol):
    """What a mapped file needs of its disk."""

    spare: SpareDescriptor
    pages: PageFiller

    def note_mapping(self, opened: MappedFile) -> None:
        """Count a file that is about to be mapped."""

    def note_unmapping(self, closed: MappedFile) -> None:
        """Subtract a file that was unmapped."""

    def sync_folders(self, full: str) -> None:
        """Make a new file's name durable."""


class MappedFile:
    """A memory-mapped File; unmapped when too many others are open, and mapped again on access.

    Allocated blocks are safe to write: the range [_ready_from, _ready_end), which grows with writes
    that continue it, and single blocks elsewhere (an index file's hash slots)."""

    __slots__ = (
        "_ahead_size", "_blocks", "_descriptor", "_disk", "_guard", "_is_new",
        "_is_orphaned", "_is_sequential", "_map", "_path", "_ready_end", "_ready_from", "_syncing",
        "size", "was_used",
    )  # fmt: skip
    block_bits: Final = _BLOCK_BITS

    def __init__(
        self, disk: MappingDisk, path: str, *, size: int, is_new: bool, is_sequential: bool = False
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
        self._syncing = -1
        """The descriptor that a sync on the other thread is using; -1 for none."""
        self._is_orphaned = False

    def write(self, position: int, data: bytes) -> None:
        """Write bytes at a position (File.write)."""
        end = position + len(data)
        if position < self._ready_from or end > self._ready_end:
            self._allocate_for_write(position, end)
        self.was_used = True
        (self._map or self._map_file())[position:end] = data

    def read(self, position: int, size: int) -> bytes:
        """Return bytes from a position (File.read)."""
        self.was_used = True
        return (self._map or self._map_file())[position : position + size]

    def read_runs(self, runs: bytes, base: int) -> bytes | None:
        """Read several ranges in one call (File.read_runs)."""
        self.was_used = True
        if native.copy_runs is None:
            return slice_runs(runs, base, self._map or self._map_file())
        return native.copy_runs(self._map or self._map_file(), base, runs)

    def read_many(self, positions: list[int], size: int) -> bytes:
        """Return pieces of one size from many positions, concatenated."""
        self.was_used = True
        mapped = self._map or self._map_file()
        return b"".join([mapped[at : at + size] for at in positions])

    def whole_mapping(self) -> mmap.mmap:
        """Return the whole mapping; only allocated parts may be accessed."""
        self.was_used = True
        return self._map or self._map_file()

    def allocate_blocks(self, blocks: set[int]) -> None:
        """Allocate blocks, so that they can be accessed; raises DiskFull if there is no space for
        one."""
        for block in blocks - self._blocks:
            self._allocate_block(block)

    def write_many(self, pieces: Sequence[tuple[int, bytes]]) -> None:
        """Write many small pieces at their positions; none crosses a block's border. If there is no
        space for one, raises DiskFull, and nothing is written."""
        self.was_used = True
        mapped = self._map or self._map_file()
        self.allocate_blocks({at >> _BLOCK_BITS for at, _ in pieces})
        for at, piece in pieces:
            mapped[at : at + len(piece)] = piece

    def write_again(self, position: int, size: int) -> None:
        """Write a range again after a failed sync (File.write_again). Uses system calls: if a page
        cannot be written through the map, as on a read-only file system, the process would be
        killed (SIGBUS)."""
        self.was_used = True
        if self._map is None:
            self._map_file()
        end = position + size
        while position < end:
            piece = os.pread(self._descriptor, min(end - position, _AGAIN_SIZE), position)
            if not piece:
                raise StorageError(f"{self._path} ends before {end}: another process truncated it")
            is_empty = piece == _ZEROS[: len(piece)]  # a hole takes no space, and should take none
            position += len(piece) if is_empty else os.pwrite(self._descriptor, piece, position)

    def reserve(self, position: int, size: int) -> None:
        """Allocate a range (File.reserve)."""
        assert 0 <= position <= position + size <= self.size, (position, size, self.size)
        end = position + size
        if self._ready_from <= position and end <= self._ready_end:
            return
        self._allocate(position, end)
        if self._is_sequential:
            self._disk.pages.fill_soon(self._path, position, end)
        if self._ready_from <= position <= self._ready_end:
            self._ready_end = end
        elif self._ready_end == 0:
            self._ready_from, self._ready_end = position, end

    def next_data_position(self, position: int) -> int:
        """Return the first position from here on that may contain data; `size` if all is zeros."""
        if self._map is None:
            self._map_file()
        try:
            return min(os.lseek(self._descriptor, position, os.SEEK_DATA), self.size)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return self.size
            return position  # it cannot tell: anything may be there

    def data_end(self) -> int:
        """Return the end of the last data; 0 if all is zeros."""
        if self._map is None:
            self._map_file()
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
        """Make the file durable by fdatasync, which on Linux includes writes through the map
        (File.sync)."""
        with self._guard:
            # Read and recorded under one lock: otherwise `close` could free the number in between,
            # and another file could have it when fdatasync is called.
            descriptor = self._syncing = self._descriptor
            is_new, self._is_new = self._is_new, False
        try:
            if descriptor >= 0:
                self._sync_by_descriptor(descriptor)
            elif not self._sync_reopened():
                return  # removed since: nothing to make durable
            if is_new:
                self._disk.sync_folders(self._path)
        except OSError:
            self._is_new = is_new
            raise
        finally:
            with self._guard:
                self._syncing = -1
                if self._is_orphaned:
                    self._is_orphaned = False
                    os.close(descriptor)

    def _sync_by_descriptor(self, descriptor: int) -> None:
        """Sync with this open descriptor, without opening another."""
        if not os.fstat(descriptor).st_nlink and not self._is_orphaned:
            raise FileNotFoundError(errno.ENOENT, "removed by another process", self._path)
        os.fdatasync(descriptor)

    def _sync_reopened(self) -> bool:
        try:
            # Pages written through a map outlive it: any descriptor of the file makes them durable.
            with self._disk.spare.open_briefly(self._path, os.O_RDWR) as descriptor:
                os.fdatasync(descriptor)
        except FileNotFoundError:
            return False
        return True

    def close(self) -> None:
        """Unmap; a later access maps the file again."""
        with self._guard:
            if self._map is not None:
                self._map.close()
                self._map = None
                if self._syncing == self._descriptor:
                    self._is_orphaned = True  # closed when the sync is through
                else:
                    os.close(self._descriptor)
                self._descriptor = -1
                self._disk.note_unmapping(self)

    def _map_file(self) -> mmap.mmap:
        self._disk.note_mapping(self)
        with self._guard:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            try:
                mapped = mmap.mmap(descriptor, self.size)
                if not self._is_sequential:
                    # Otherwise the first access to a file would read 8 MB ahead, or fill as much
                    # with zeros: that takes 2 ms instead of 0.02, and a topic of 1024 queues has as
                    # many files.
                    mapped.madvise(mmap.MADV_RANDOM)
                self._map = mapped
            except BaseException:
                os.close(descriptor)
                raise
            self._descriptor = descriptor
        return self._map

    def _allocate_for_write(self, position: int, end: int) -> None:
        """Allocate the blocks for a write, and more if the writes are consecutive. Called by
        `write` if a block is missing."""
        if end > self.size:
            raise StorageError(f"{self._path}: write up to {end} in a file of {self.size} bytes")
        first, last = position >> _BLOCK_BITS, (end - 1) >> _BLOCK_BITS
        if self._blocks.issuperset(range(first, last + 1)):
            return
        is_next = self._ready_from <= position <= self._ready_end
        if is_next or self._ready_end == 0:
            until = min(max(end, self._ready_end) + self._ahead_size, self.size)
            try:
                self._allocate(position, until)
            except DiskFull:
                until = end  # perhaps there is space for just this
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
            self._map_file()
        try:
            os.posix_fallocate(self._descriptor, position, end - position)
        except OSError as error:
            if error.errno in NO_ROOM:
                raise DiskFull(f"{self._path}: no room for {end - position} bytes") from error
            raise


class SystemCallFile(MappedFile):
    """A File on a file system in memory (tmpfs), accessed by system calls. There even reading a
    hole through a map allocates a page, and kills the process if there is no space."""

    __slots__ = ()

    def read(self, position: int, size: int) -> bytes:
        """Return bytes from a position (File.read)."""
        self.was_used = True
        if self._map is None:
            self._map_file()
        return os.pread(self._descriptor, size, position)

    def read_runs(self, runs: bytes, base: int) -> bytes | None:
        """Read several ranges in one call (File.read_runs)."""
        return join_runs(runs, base, self.size, self.read)

    def read_many(self, positions: list[int], size: int) -> bytes:
        """Return pieces of one size from many positions, concatenated."""
        return b"".join([self.read(at, size) for at in positions])
