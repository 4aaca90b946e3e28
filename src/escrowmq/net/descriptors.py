"""Limits the open files and connections of this process, and keeps one descriptor in reserve.

A sync that finds no free descriptor has lost nothing yet; it must not be taken for a failed one."""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from escrowmq.base.ports import SyncNotStarted

_OUT_OF: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_OPEN_FILES_MIN: Final = 64
_OPEN_FILES_MAX: Final = 2048
_FILES_PER_MAP: Final = 4  # mmap keeps a descriptor of its own; half is left to connections
_PER_MAPPED_FILE: Final = 2
_RESERVE: Final = 64
"""Descriptors kept for everything else: standard streams, event loop, metrics, small files."""

_CONNECTIONS_MIN: Final = 16


def files_limit() -> int:
    """The process's limit of descriptors (ulimit -n)."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def open_files_max() -> int:
    """Return how many files of a store may be mapped at a time."""
    return min(max(files_limit() // _FILES_PER_MAP, _OPEN_FILES_MIN), _OPEN_FILES_MAX)


def connections_max() -> int:
    """Return how many connections may be open, so that enough descriptors remain for the store."""
    left = files_limit() - _PER_MAPPED_FILE * open_files_max() - _RESERVE
    return max(left, _CONNECTIONS_MIN)


class SpareDescriptor:
    """A descriptor in reserve for when the process has used up all others."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._spare = os.dup(self._null)

    @contextmanager
    def open_briefly(self, path: str, flags: int) -> Iterator[int]:
        """Open a file for a moment with the spare descriptor; raises SyncNotStarted if there is
        none."""
        descriptor = self._open(path, flags)
        if descriptor >= 0:
            try:
                yield descriptor
            finally:
                os.close(descriptor)
            return
        with self._guard:
            descriptor = self._open_by_spare(path, flags)
            try:
                yield descriptor
            finally:
                # In one step, so that no other file gets the descriptor.
                os.dup2(self._null, descriptor, inheritable=False)
                self._spare = descriptor

    def _open(self, path: str, flags: int) -> int:
        try:
            return os.open(path, flags | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in _OUT_OF:
                return -1
            raise

    def _open_by_spare(self, path: str, flags: int) -> int:
        if self._spare >= 0:
            # The spare one is lost if another file takes the number before this opens its own.
            # Whichever descriptor is opened here next becomes the new spare one (`open_briefly`).
            os.close(self._spare)
            self._spare = -1
        try:
            return os.open(path, flags | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in _OUT_OF:
                raise SyncNotStarted(error.errno, f"{error.strerror}: {path}") from error
            self._spare = os.dup(self._null)
            raise

    def close(self) -> None:
        """Close the spare descriptor."""
        for descriptor in (self._null, self._spare):
            if descriptor >= 0:
                os.close(descriptor)
        self._null = self._spare = -1
