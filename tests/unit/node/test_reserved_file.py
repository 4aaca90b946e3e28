"""A file that is replaced on a full disk, whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.failover import disks

from escrowmq.net.disk import FileDisk
from escrowmq.node.reserved_file import RESERVE_SUFFIX, ReservedFile


def test_the_next_content_goes_where_space_is_taken_already(tmp_path: Path) -> None:
    path, file = tmp_path / "state", ReservedFile(FileDisk(str(tmp_path)), "state")
    file.write(b"1" * 3_000)
    reserved = (tmp_path / f"state{RESERVE_SUFFIX}").stat()
    assert reserved.st_blocks * 512 >= 6_000
    file.write(b"2" * 6_000)
    assert path.stat().st_ino == reserved.st_ino
    assert path.read_bytes() == b"2" * 6_000
    assert path.stat().st_mode & 0o777 == 0o600
    file.write(b"3")
    assert path.read_bytes() == b"3"
    assert (tmp_path / f"state{RESERVE_SUFFIX}").stat().st_blocks * 512 >= 4_096


def test_a_full_disk_has_room_for_it(tmp_path: Path) -> None:
    if not disks.is_mountable(tmp_path):
        pytest.skip("this process cannot mount a file system")
    folder = tmp_path / "disk"
    with disks.mounted(folder):
        file = ReservedFile(FileDisk(str(folder)), "state")
        file.write(b"1" * 100)
        with disks.full(folder):
            with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
                (folder / "other").write_bytes(b"x")
            file.write(b"2" * 4_000)
        assert (folder / "state").read_bytes() == b"2" * 4_000


def test_what_cannot_be_made_durable_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = ReservedFile(FileDisk(str(tmp_path)), "state")
    file.write(b"1")

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        file.write(b"2")
    assert (tmp_path / "state").read_bytes() == b"1"
