"""A lease that is a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from escrowmq.client.lease_base import LeaseTaken
from escrowmq.errors import UsageError
from escrowmq.net.clock import SystemClock, steady_s
from escrowmq.pipeline.reconcile.lease import FileLease, require_lease
from tests.interop.process import until


def age(path: Path, seconds: float) -> None:
    """Let the last renewal be so long ago."""
    then_ns = int((SystemClock().now_ms() / 1000 - seconds) * 1e9)
    os.utime(path, ns=(then_ns, then_ns))


def test_one_holds_it_and_gives_it_back(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with FileLease(folder) as lease:
        assert lease.is_held
        require_lease(lease)
        with pytest.raises(LeaseTaken, match="another process holds the lease"), FileLease(folder):
            pass
        assert lease.is_held
    assert not (folder / "lease").exists()
    with FileLease(folder) as lease:
        assert lease.is_held


def test_one_that_is_not_renewed_is_taken_over_and_its_holder_notices(tmp_path: Path) -> None:
    with FileLease(tmp_path, span_s=0.3) as first:
        age(tmp_path / "lease", 120)
        with FileLease(tmp_path, span_s=60) as second:
            until("its loss is noticed", lambda: not first.is_held)
            with pytest.raises(LeaseTaken, match="the next run repeats the work"):
                require_lease(first)
            assert second.is_held
    assert not (tmp_path / "lease").exists()


def test_it_is_renewed_while_it_is_held(tmp_path: Path) -> None:
    with FileLease(tmp_path, span_s=0.3):
        path = tmp_path / "lease"
        before = path.stat().st_mtime_ns
        until("it is renewed", lambda: path.stat().st_mtime_ns > before)


def test_it_is_renewed_when_it_is_held_again(tmp_path: Path) -> None:
    """It said that it was held, and another one could take it meanwhile."""
    lease = FileLease(tmp_path, span_s=0.3)
    with lease:
        pass
    with lease:
        path = tmp_path / "lease"
        before = path.stat().st_mtime_ns
        until("it is renewed", lambda: path.stat().st_mtime_ns > before)
        age(path, 120)
        until("its loss is noticed", lambda: not lease.is_held)


def test_it_is_held_no_longer_than_others_leave_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a renewal had no answer, its holder still counted on it, and another one took it."""
    with FileLease(tmp_path, span_s=60) as first:
        now_s = steady_s()
        monkeypatch.setattr("escrowmq.client.lease_base.steady_s", lambda: now_s + 61)
        age(tmp_path / "lease", 61)
        with FileLease(tmp_path, span_s=60) as second:
            assert second.is_held
            assert not first.is_held


def test_who_lost_it_does_not_take_the_others_away(tmp_path: Path) -> None:
    first = FileLease(tmp_path)
    with first:
        (tmp_path / "lease").write_text("somebody else's")
    assert (tmp_path / "lease").read_text() == "somebody else's"


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="no lease can be stored"), FileLease(tmp_path / "file"):
        pass
