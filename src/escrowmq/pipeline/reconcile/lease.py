"""A lease without a server: a file in the result folder, so that only one process works there."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from escrowmq.client.lease_base import Lease, LeaseTaken
from escrowmq.errors import UsageError
from escrowmq.net.clock import SystemClock

SPAN_S: Final = 60.0


def require_lease(lease: Lease) -> None:
    """Raise LeaseTaken if the lease was lost."""
    if not lease.is_held:
        raise LeaseTaken(
            "the lease was lost, perhaps because this run was suspended for too long; "
            "nothing is lost, and the next run repeats the work"
        )


class FileLease(Lease):
    """A lease as a file in a folder shared by all competing processes. A lease that was not renewed
    for its duration is taken over, so the machines' clocks must differ by less than that.

    >>> with FileLease(folder) as lease:
    ...     lease.is_held
    True
    """

    def __init__(self, folder: str | Path, *, name: str = "lease", span_s: float = SPAN_S) -> None:
        super().__init__(name, span_s=span_s)
        self._path = Path(folder) / name
        self._guard = Path(folder) / f"{name}.guard"
        self._clock = SystemClock()

    def _acquire(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._file_lock():
                self._acquire_if_free()
        except OSError as error:
            raise UsageError(
                f"no lease can be stored in {self._path.parent}: {error.strerror}; name a "
                "writable folder, or use a lease of a Redis server"
            ) from error

    def _renew(self) -> bool:
        with contextlib.suppress(OSError), self._file_lock():
            if self._is_mine() and self._left_s() > 0:
                self._touch()
                return True
        return False

    def _release(self, *, was_held: bool) -> None:
        with contextlib.suppress(OSError), self._file_lock():
            if self._is_mine():
                self._path.unlink()

    def _acquire_if_free(self) -> None:
        left_s = self._left_s()
        if left_s > 0:
            raise LeaseTaken(
                f"another process holds the lease {self._path}, for at least {left_s:.0f} s; "
                "let it finish, or make sure that it has ended"
            )
        self._path.unlink(missing_ok=True)
        file = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        with os.fdopen(file, "w") as lease:
            lease.write(self._token)
        self._touch()

    def _left_s(self) -> float:
        try:
            renewed_s = self._path.stat().st_mtime
        except FileNotFoundError:
            return 0.0
        return renewed_s + self._span_s - self._clock.now_ms() / 1000

    def _touch(self) -> None:
        now_ns = self._clock.now_ms() * 1_000_000
        os.utime(self._path, ns=(now_ns, now_ns))

    def _is_mine(self) -> bool:
        try:
            return self._path.read_text() == self._token
        except OSError:
            return False

    @contextlib.contextmanager
    def _file_lock(self) -> Iterator[None]:
        """Hold the kernel's lock on the file, so that no other process acts between finding the
        lease stale and taking it. The kernel releases the lock when the process ends."""
        descriptor = os.open(self._guard, os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)
