from __future__ import annotations

import ctypes
import mmap
import os
import threading
from pathlib import Path

import pytest

from escrowmq.net.disk import FileDisk
from escrowmq.net.page_filler import PageFiller

SIZE = 1 << 20


def resident_pages(path: Path) -> int:
    """How many pages of a file are in memory."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        found = (ctypes.c_ubyte * (len(mapped) // mmap.PAGESIZE))()
        first = ctypes.c_char.from_buffer(mapped)
        libc = ctypes.CDLL(None, use_errno=True)
        done = libc.mincore(ctypes.byref(first), ctypes.c_size_t(len(mapped)), found)
        del first
        assert done == 0, os.strerror(ctypes.get_errno())
    return sum(page & 1 for page in found)


def test_pages_of_a_range_are_in_memory_before_anybody_writes_there(tmp_path: Path) -> None:
    path, pages = tmp_path / "log", PageFiller()
    with path.open("w+b") as file:
        os.posix_fallocate(file.fileno(), 0, SIZE)
    pages.fill_soon(str(path), SIZE // 4, SIZE // 2)
    pages.close()
    assert resident_pages(path) >= SIZE // 4 // mmap.PAGESIZE


def test_a_file_that_is_gone_is_nobodys_error(tmp_path: Path) -> None:
    pages = PageFiller()
    pages.fill_soon(str(tmp_path / "gone"), 0, SIZE)
    pages.close()


def test_a_thread_that_cannot_be_had_is_nobodys_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pages = PageFiller()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        pages.fill_soon(str(tmp_path / "log"), 0, SIZE)
    pages.close()
    pages.fill_soon(str(tmp_path / "log"), 0, SIZE)


def test_what_is_reserved_of_a_log_is_filled_and_of_other_files_is_not(tmp_path: Path) -> None:
    disk = FileDisk(str(tmp_path))
    for name in ("log", "queue"):
        disk.open(name, size=SIZE, is_sequential=name == "log").reserve(0, SIZE)
    disk.close()
    assert resident_pages(tmp_path / "log") == SIZE // mmap.PAGESIZE
    assert resident_pages(tmp_path / "queue") == 0
