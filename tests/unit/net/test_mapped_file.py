"""What the native lane is given of a file. All else is held by test_disk."""

import os
from pathlib import Path

import pytest

from escrowmq.net.disk import FileDisk
from escrowmq.net.mapped_file import MappedFile


def test_file_is_memory_where_it_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = FileDisk(str(tmp_path)).open("f", size=1 << 20)
    assert isinstance(file, MappedFile)
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "posix_fallocate", lambda _, *span: asked.append(span))
    file.allocate_blocks({0, 3})
    file.allocate_blocks({3})
    size = 1 << file.block_bits
    assert sorted(asked) == [(0, size), (3 * size, size)]
    monkeypatch.undo()
    file.whole_mapping()[3 * size : 3 * size + 5] = b"there"
    file.write(0, b"here")
    assert file.read(3 * size, 5) == b"there"
    assert file.whole_mapping()[:4] == b"here"
    file.close()


def test_write_over_many_blocks_has_room_in_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Touched without room, a page between two that have some would kill the process."""
    file = FileDisk(str(tmp_path)).open("f", size=1 << 20)
    assert isinstance(file, MappedFile)
    size = 1 << file.block_bits
    file.write(0, b"here")
    file.allocate_blocks({8, 10})
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "posix_fallocate", lambda _, *span: asked.append(span))
    file.write(8 * size, bytes(3 * size))
    assert (9 * size, size) in asked
    file.close()
