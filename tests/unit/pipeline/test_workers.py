"""A worker's tasks after the first: what was loaded is left alone."""

from __future__ import annotations

import gc
import importlib
import os
import sys
import zipfile
from pathlib import Path

import pytest

from escrowmq.pipeline import workers
from escrowmq.pipeline.workers import (
    freeze_objects_once,
    keep_archive_directories,
    speed_up_process,
)


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package in an archive from which one module is imported, as pyspark's are."""
    path = tmp_path / "sparks.zip"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("sparks/__init__.py", "")
        made.writestr("sparks/first.py", "")
        made.writestr("sparks/second.py", "VALUE = 2")
    monkeypatch.syspath_prepend(str(path))
    for name in ("sparks", "sparks.first", "sparks.second"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.import_module("sparks.first")
    return str(path)


def finders_of(archive: str) -> list[str]:
    return [path for path in sys.path_importer_cache if path.startswith(archive)]


def test_finders_of_an_archive_are_forgotten_and_those_of_others_kept(archive: str) -> None:
    kept = set(sys.path_importer_cache) - set(finders_of(archive))
    assert len(finders_of(archive)) == 2
    keep_archive_directories([archive])
    assert finders_of(archive) == []
    assert set(sys.path_importer_cache) == kept


def test_more_can_be_imported_from_an_archive_whose_finders_are_forgotten(archive: str) -> None:
    keep_archive_directories([archive])
    assert importlib.import_module("sparks.second").VALUE == 2


def test_the_archives_are_those_that_the_process_was_started_with(
    archive: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    speed_up_process()
    assert finders_of(archive)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["elsewhere", archive]))
    speed_up_process()
    assert finders_of(archive) == []


def test_what_is_loaded_is_put_aside_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers._FreezeState, "is_done", False)
    frozen: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(True))
    freeze_objects_once()
    freeze_objects_once()
    assert frozen == [True]
