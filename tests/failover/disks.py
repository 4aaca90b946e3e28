"""File systems of a test's own, small enough to fill. Only root can mount them."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

BYTES_MAX: Final = 256 * 1_048_576


def is_mountable(folder: Path) -> bool:
    """Whether this process can mount file systems there."""
    try:
        with mounted(folder / "tried"):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


@contextmanager
def mounted(folder: Path) -> Iterator[None]:
    """A file system in memory, with room for `BYTES_MAX`."""
    folder.mkdir(parents=True, exist_ok=True)
    options = ["-t", "tmpfs", "-o", f"size={BYTES_MAX}", "escrowmq-test", str(folder)]
    subprocess.run(["mount", *options], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """Not a page is left of the folder's file system, until the block ends."""
    filler = folder / "filler"
    try:
        with filler.open("wb") as file:
            size = BYTES_MAX
            while size >= os.sysconf("SC_PAGESIZE"):
                size = _allocate(file.fileno(), size)
        yield
    finally:
        filler.unlink()


def _allocate(descriptor: int, size: int) -> int:
    """Take so much more, or say with how much less it should be tried."""
    try:
        os.posix_fallocate(descriptor, os.fstat(descriptor).st_size, size)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return size // 2
    return size
