"""What is written anew after a failed sync, on this machine's file system."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from escrowmq.errors import StorageError
from escrowmq.net.disk import FileDisk

MIB = 1 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FileDisk]:
    found = FileDisk(str(tmp_path / "store"))
    yield found
    found.close()


def test_what_is_written_again_is_what_was_there_and_takes_no_room_for_holes(
    disk: FileDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open("log", size=8 * MIB)
    file.write(100, b"one")
    file.write(3 * MIB, b"two")
    blocks = os.stat(f"{disk.root}/log").st_blocks
    written: list[tuple[int, int]] = []
    pwrite = os.pwrite

    def seen(descriptor: int, data: bytes, position: int) -> int:
        written.append((position, len(data)))
        return pwrite(descriptor, data, position)

    monkeypatch.setattr(os, "pwrite", seen)
    file.write_again(0, 4 * MIB)
    assert written == [(0, MIB), (3 * MIB, MIB)]
    assert (file.read(100, 3), file.read(3 * MIB, 3)) == (b"one", b"two")
    file.write_again(100, 3)
    assert written[2:] == [(100, 3)]
    assert os.stat(f"{disk.root}/log").st_blocks <= blocks + 2 * MIB // 512


def test_file_that_was_cut_by_somebody_is_not_written_again(disk: FileDisk) -> None:
    file = disk.open("log", size=MIB)
    file.write(0, b"one")
    os.truncate(f"{disk.root}/log", 4096)
    with pytest.raises(StorageError, match="cut"):
        file.write_again(0, 8192)
