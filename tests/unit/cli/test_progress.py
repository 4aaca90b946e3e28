from __future__ import annotations

import pytest

from escrowmq.cli.progress import Progress


class Clock:
    def __init__(self) -> None:
        self.now_s = 5.0

    def __call__(self) -> float:
        return self.now_s


def test_a_terminal_sees_how_far_it_is_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    progress = Progress("checking", is_terminal=True, now_s=clock)
    progress(1, 100)
    assert capsys.readouterr().err == ""  # what is done at once has no progress
    clock.now_s += 1
    progress(50 << 20, 100 << 20)
    progress(51 << 20, 100 << 20)
    assert capsys.readouterr().err == "\r\x1b[Kchecking: 50 %, 50.0 MiB of 100.0 MiB"
    progress.erase()
    assert capsys.readouterr().err == "\r\x1b[K"


def test_a_pipe_sees_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    progress = Progress("checking", is_terminal=False, now_s=clock)
    clock.now_s += 1
    progress(1, 0)
    progress.erase()
    assert capsys.readouterr().err == ""
