"""Stretches that are read together: one by one, and by the native lane."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.runs import RUN, join_runs, slice_runs, split_runs
from escrowmq.lane import native
from escrowmq.net.disk import FileDisk
from escrowmq.net.mapped_file import SystemCallFile
from escrowmq.net.read_only import ReadOnlyDisk
from escrowmq.store.segment import Segments
from escrowmq.testing.disk import SimDisk

DATA = bytes(range(200))
FAR = (1 << 63) - 1


def runs_of(*runs: tuple[int, int]) -> bytes:
    return b"".join([RUN.pack(*run) for run in runs])


def read(position: int, size: int) -> bytes:
    return DATA[position : position + size]


def test_they_come_one_behind_the_other() -> None:
    assert join_runs(runs_of((1_010, 3), (1_000, 2), (1_198, 2)), 1_000, 200, read) == (
        DATA[10:13] + DATA[:2] + DATA[198:]
    )
    assert join_runs(b"", 1_000, 200, read) == b""
    assert slice_runs(runs_of((1_010, 3), (1_000, 2)), 1_000, DATA) == DATA[10:13] + DATA[:2]


def test_they_are_told_apart_again() -> None:
    runs = runs_of((10, 3), (100, 2))
    whole = join_runs(runs, 0, 200, read)
    assert whole is not None
    assert split_runs(whole, runs) == [DATA[10:13], DATA[100:102]]
    assert split_runs(b"", b"") == []


@pytest.mark.parametrize("odd", [(999, 1), (1_199, 2), (1_000, 201), (1_000, -1), (FAR, 1)])
def test_what_is_not_wholly_there_is_not_read(odd: tuple[int, int]) -> None:
    assert join_runs(runs_of((1_000, 2), odd), 1_000, 200, read) is None
    assert slice_runs(runs_of((1_000, 2), odd), 1_000, DATA) is None


PLACES = st.integers(990, 1_210) | st.sampled_from([0, -1, FAR, -FAR])
SIZES = st.integers(-2, 210) | st.sampled_from([FAR, -FAR])


@pytest.mark.skipif(native.copy_runs is None, reason="the lane is not built, or left aside")
@given(st.lists(st.tuples(PLACES, SIZES), max_size=4), st.sampled_from([0, 1_000, 1_001, FAR]))
def test_compiled_code_reads_the_same(runs: list[tuple[int, int]], base: int) -> None:
    assert native.copy_runs is not None
    given_to_both = runs_of(*runs)
    assert native.copy_runs(DATA, base, given_to_both) == join_runs(given_to_both, base, 200, read)
    assert slice_runs(given_to_both, base, DATA) == join_runs(given_to_both, base, 200, read)


@pytest.mark.skipif(native.copy_runs is None, reason="the lane is not built, or left aside")
def test_compiled_code_refuses_what_is_none() -> None:
    copy_runs: Any = native.copy_runs
    with pytest.raises(ValueError, match="in front of all"):
        copy_runs(DATA, -1, b"")
    with pytest.raises(ValueError, match="no whole runs"):
        copy_runs(DATA, 0, bytes(15))
    for strange in (("text", 0, b""), (DATA, None, b""), (DATA, 0, ""), (DATA, 0), (DATA,)):
        with pytest.raises(TypeError):
            copy_runs(*strange)
    with pytest.raises(OverflowError):
        copy_runs(DATA, 1 << 70, b"")


@pytest.mark.parametrize("is_compiled", [True, False])
def test_every_kind_of_file_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_compiled: bool
) -> None:
    if not is_compiled:
        monkeypatch.setattr(native, "copy_runs", None)
    disk = FileDisk(str(tmp_path))
    mapped, in_memory = disk.open("f", size=200), SimDisk().open("f", size=200)
    for file in (mapped, in_memory):
        file.write(0, DATA)
    files = [mapped, in_memory, ReadOnlyDisk(str(tmp_path)).open("f", size=200)]
    files.append(SystemCallFile(disk, str(tmp_path / "f"), size=200, is_new=False))
    for file in files:
        assert file.read_runs(runs_of((10, 3), (198, 2)), 0) == DATA[10:13] + DATA[198:]
        assert file.read_runs(runs_of((10, 3), (198, 3)), 0) is None
        file.close()
    disk.close()


def test_those_of_several_segments_are_read_by_themselves() -> None:
    segments = Segments(SimDisk(), "log", segment_size=100)
    for at in (0, 100):
        segments.get_or_create(at).write(0, DATA[at : at + 100])
    assert segments.read_runs(runs_of((10, 3), (20, 3))) == [DATA[10:13] + DATA[20:23]]
    assert segments.read_runs(runs_of((10, 3), (120, 3))) == [DATA[10:13], DATA[120:123]]
    assert segments.read_runs(runs_of((300, 3), (20, 3))) == [b"", DATA[20:23]]
