"""Folders that are made on the way to a file are durable when it is said to be."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from escrowmq.errors import StorageError
from escrowmq.net.disk import FileDisk


def test_a_small_file_in_new_folders_is_durable_with_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder that it stands in was synced alone: its own name might have been lost, with it."""
    disk = FileDisk(str(tmp_path))
    synced: list[str] = []
    monkeypatch.setattr(disk, "_sync_folder", synced.append)
    disk.replace("config/more/topics.json", b"{}")
    assert synced == [f"{tmp_path}/config/more", f"{tmp_path}/config", str(tmp_path)]
    synced.clear()
    disk.replace("config/more/topics.json", b"{ }")
    assert synced == [f"{tmp_path}/config/more"]
    disk.close()


def test_the_names_are_made_durable_by_the_next_file_where_the_first_one_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FileDisk(str(tmp_path))
    synced: list[str] = []
    monkeypatch.setattr(disk, "_sync_folder", synced.append)
    with monkeypatch.context() as failing:
        failing.setattr("os.replace", _refuse)
        with pytest.raises(StorageError, match="not now"):
            disk.replace("config/topics.json", b"{}")
    assert not synced
    disk.replace("config/topics.json", b"{}")
    assert synced == [f"{tmp_path}/config", str(tmp_path)]
    disk.close()


def _refuse(*_: str) -> None:
    raise OSError(errno.EIO, "not now")
