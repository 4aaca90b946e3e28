"""A folder that is looked at stays as it was, whatever is tried on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from escrowmq.errors import SegmentMissing, StorageError
from escrowmq.net.disk import FileDisk
from escrowmq.net.read_only import ReadOnlyDisk


def test_what_is_there_is_read_beside_the_process_that_has_it_locked(tmp_path: Path) -> None:
    owner = FileDisk(str(tmp_path))
    owner.lock("lock")
    owner.open("a/0", size=8192).write(4096, b"there")
    looker = ReadOnlyDisk(str(tmp_path))
    looker.lock("lock")
    file = looker.open("a/0", size=8192)
    assert file.read(4096, 5) == b"there"
    assert file.read(8190, 100) == b"\0\0"


def test_nothing_is_made_changed_or_removed(tmp_path: Path) -> None:
    FileDisk(str(tmp_path)).open("a/0", size=4096).write(0, b"there")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    looker = ReadOnlyDisk(str(tmp_path))
    file = looker.open("a/0", size=4096)
    changes: list[Callable[[], object]] = [
        lambda: file.write(0, b"x"),
        lambda: file.write_again(0, 1),
        lambda: file.reserve(0, 1),
        lambda: looker.replace("small", b"x"),
    ]
    for change in changes:
        with pytest.raises(StorageError, match="reading only"):
            change()
    file.sync()
    looker.remove("a/0")
    file.close()
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_what_is_not_there_or_is_of_another_size_is_told(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is not a folder"):
        ReadOnlyDisk(str(tmp_path / "none"))
    FileDisk(str(tmp_path)).open("a/0", size=4096)
    looker = ReadOnlyDisk(str(tmp_path))
    with pytest.raises(SegmentMissing):
        looker.open("a/4096", size=4096)
    with pytest.raises(StorageError, match="4096 bytes, 8192 expected"):
        looker.open("a/0", size=8192)
