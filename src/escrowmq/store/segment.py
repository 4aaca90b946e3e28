"""Segments: files of equal length that together form one sequence of bytes.

name   20 decimal digits, the position of the file's first byte in the sequence
length always the full one from creation on; bytes not written yet are zeros
"""

from __future__ import annotations

from typing import Final

from escrowmq.base.ports import Disk, File, SparseFile
from escrowmq.base.runs import RUN
from escrowmq.codec.log_walker import next_data
from escrowmq.errors import StorageError
from escrowmq.lane.native import Buffer
from escrowmq.store.trailing_zeros import strip_trailing_zeros

NAME_SIZE: Final = 20


class Segments:
    """The files of one folder as one sequence of bytes. A file is opened when first used."""

    def __init__(
        self, disk: Disk, folder: str, *, segment_size: int, is_sequential: bool = False
    ) -> None:
        self._disk = disk
        self._is_sequential = is_sequential
        self.folder = folder
        self.segment_size = segment_size
        self._files: dict[int, File | None] = {}

    @property
    def starts(self) -> list[int]:
        """The first positions of the existing files, in order."""
        return sorted(self._files)

    @property
    def first_position(self) -> int:
        """The position of the first byte; 0 without files."""
        return min(self._files) if self._files else 0

    @property
    def last_start(self) -> int:
        """The position at which the last file starts; -1 without files."""
        return max(self._files) if self._files else -1

    @property
    def end(self) -> int:
        """The position after the last file."""
        return max(self._files) + self.segment_size if self._files else 0

    def load(self) -> list[str]:
        """Find the existing files, and return notes about foreign ones, which are left alone.

        Raises StorageError when a file's length does not match the settings.
        """
        notes = []
        names = self._disk.names(self.folder)
        segments = [name for name in names if len(name) == NAME_SIZE and name.isdigit()]
        for name in segments:
            size = self._disk.size(self.path(int(name)))
            if size == 0 and name == segments[-1]:
                # RocketMQ (MappedFileQueue.doLoad) drops a last file that got no length.
                self._disk.remove(self.path(int(name)))
                notes.append(f"{self.path(int(name))} was empty and is removed")
            elif size != self.segment_size or int(name) % self.segment_size:
                raise StorageError(self._size_problem(name, size, is_last=name == segments[-1]))
            else:
                self._files[int(name)] = None
        return notes

    def _size_problem(self, name: str, size: int | None, *, is_last: bool) -> str:
        """Return what is wrong with a file of another length, and what to do about it."""
        path = self.path(int(name))
        if is_last and size is not None and size < self.segment_size and self._files:
            return (
                f"{path} has {size} bytes, the files before it {self.segment_size}: it was cut "
                f"off. Put a whole copy back, or lengthen it (truncate -s {self.segment_size}) and "
                "lose what it lacks"
            )
        return (
            f"{path} has {size} bytes, the settings say {self.segment_size}; set the size that the "
            "store was made with, or put back a whole copy if the file was cut off"
        )

    def path(self, start: int) -> str:
        """Return the path of the file that starts at a position."""
        return f"{self.folder}/{start:020d}"

    def start_of(self, position: int) -> int:
        """Return the start of the file that holds a position."""
        return position - position % self.segment_size

    def end_of(self, position: int) -> int:
        """Return the end of the file that holds a position."""
        return position - position % self.segment_size + self.segment_size

    def has(self, position: int) -> bool:
        """Whether the file that holds a position exists."""
        return self.start_of(position) in self._files

    def file(self, position: int) -> File | None:
        """Return the file that holds a position; None when there is none."""
        start = position - position % self.segment_size
        found = self._files.get(start)
        if found is None and start in self._files:
            found = self._files[start] = self._open(start)
        return found

    def _open(self, start: int) -> File:
        return self._disk.open(
            self.path(start), size=self.segment_size, is_sequential=self._is_sequential
        )

    def get_or_create(self, position: int) -> File:
        """Return the file that holds a position; create it if there is none."""
        start = self.start_of(position)
        found = self._files.get(start)
        if found is None:
            found = self._open(start)
            self._files[start] = found
        return found

    def read(self, position: int, size: int) -> bytes:
        """Return bytes from a position on; fewer where the file ends, none where there is no
        file."""
        start = position - position % self.segment_size
        found = self._files.get(start) or self.file(position)
        return found.read(position - start, size) if found is not None else b""

    def read_runs(self, runs: bytes) -> list[bytes]:
        """Return the bytes of runs (base/runs); one chunk if all of them are in one file."""
        (position, _) = RUN.unpack_from(runs)
        start = position - position % self.segment_size
        found = self._files.get(start) or self.file(start)
        data = None if found is None else found.read_runs(runs, start)
        if data is not None:
            return [data]
        return [self.read(place, size) for place, size in RUN.iter_unpack(runs)]

    def memory_at(self, position: int) -> tuple[Buffer, int] | None:
        """Return the memory of the file that holds a position, and the position where the file
        begins; None when it is not mapped."""
        start = position - position % self.segment_size
        memory = getattr(self._files.get(start) or self.file(start), "whole_mapping", None)
        return None if memory is None else (memory(), start)

    def data_size(self, start: int) -> int:
        """Return how many bytes of a file may hold data; only zeros follow. If the file cannot
        tell, it is the full size."""
        found = self.file(start)
        if isinstance(found, SparseFile):
            return found.data_end()
        return self.segment_size

    def next_data_position(self, position: int) -> int:
        """Return the first position from this one on, in the same file, that may hold data; the
        file's end if none does."""
        found, start = self.file(position), self.start_of(position)
        if isinstance(found, SparseFile):
            return start + found.next_data_position(position - start)
        return position

    def modified_ms(self, start: int) -> int:
        """Return when a file was last written; 0 when it was removed."""
        path = self.path(start)
        return 0 if self._disk.size(path) is None else self._disk.modified_ms(path)

    def remove(self, start: int) -> None:
        """Remove one file."""
        found = self._files.pop(start)
        if found is not None:
            found.close()
        self._disk.remove(self.path(start))

    def clear_after(self, end: int) -> int:
        """Zero everything after the end, so that remnants are never taken for data, and remove the
        files after it. Return how many bytes were not zero."""
        cleared = 0
        while self.last_start >= max(end, 1) and self.last_start > self.start_of(end):
            if next_data(self, self.last_start, self.end)[1]:
                cleared += self.segment_size
            self.remove(self.last_start)
        file, start = self.file(end), self.start_of(end)
        position, behind = end, self.end_of(end)
        while file is not None and position < behind:
            position, data = next_data(self, position, behind)
            if size := len(strip_trailing_zeros(data)):
                file.write(position - start, bytes(size))
                cleared += size
            position += len(data)
        return cleared

    def remove_unwritten_files(self) -> None:
        """Remove all files of this sequence; nothing may have been written to it."""
        assert not self.data_size(self.first_position) or not any(
            self.read(self.first_position, 4)
        ), self.folder
        for start in self.starts:
            self.remove(start)

    def remove_all(self) -> None:
        """Remove every file, newest first, and the folder."""
        for start in reversed(self.starts):
            self.remove(start)
        self._disk.remove(self.folder)

    def close(self) -> None:
        """Close every file."""
        for start, found in self._files.items():
            if found is not None:
                found.close()
                self._files[start] = None
