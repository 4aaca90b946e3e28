from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from escrowmq.net import input_polling
from escrowmq.net.input_polling import InputPolling

SPAN_S = 0.000_05


class Loop:
    """Turns of a loop, each of which takes a microsecond."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, cores: int = 2) -> None:
        self.now_s = 1.0
        self.ready: list[Callable[[], None]] = []
        monkeypatch.setattr(input_polling, "steady_s", lambda: self.now_s)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
        self.spin = InputPolling(SPAN_S, self.ready.append)

    def idle(self, span_s: float) -> int:
        """Nothing comes for so long: how many turns it did not sleep."""
        until_s, turns = self.now_s + span_s, 0
        while self.ready and self.now_s < until_s:
            self.ready.pop()()
            self.now_s += 0.000_001
            turns += 1
        self.now_s = max(self.now_s, until_s)
        return turns

    def answer(self) -> None:
        if not self.spin.span_s:
            return
        self.spin.note_input()
        self.now_s += 0.000_01
        self.spin.poll_if_credited()


@pytest.fixture(name="loop")
def make_loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    return Loop(monkeypatch)


def test_who_sends_one_request_after_another_finds_nobody_asleep(loop: Loop) -> None:
    turns = []
    for _ in range(5):
        loop.answer()
        turns.append(loop.idle(0.000_03))
    assert turns[0] == 0, "nothing is known of the first"
    assert min(turns[1:]) >= 25
    assert loop.spin.polled_s == pytest.approx(3 * 0.000_03, rel=0.1)


def test_requests_that_come_later_are_slept_for(loop: Loop) -> None:
    for _ in range(100):
        loop.answer()
        assert loop.idle(0.000_2) == 0
    assert not loop.spin.polled_s


def test_looking_in_vain_is_paid_by_what_came_at_once(loop: Loop) -> None:
    for _ in range(1_000):
        loop.answer()
    vain = 0
    for _ in range(100):
        loop.answer()
        vain += loop.idle(0.01) > 0
    assert vain == 4, "what was earned by the thousand is bounded"
    loop.answer()  # at once behind the last look: one more is allowed
    looks: list[bool] = []
    for _ in range(20):
        loop.answer()
        looks.append(loop.idle(0.01 if not any(looks) else 0.000_01) > 0)
    assert looks.index(True, 1) == 17, "it is in debt"


def test_it_looks_for_its_span_and_then_sleeps(loop: Loop) -> None:
    loop.answer()
    loop.answer()
    assert 45 <= loop.idle(1) <= 52
    assert not loop.ready
    assert loop.spin.polled_s == SPAN_S


@pytest.mark.parametrize("cores", [1, 2])
def test_nobody_is_kept_from_the_only_core(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    loop = Loop(monkeypatch, cores=cores)
    for _ in range(10):
        loop.answer()
    assert bool(loop.ready) == (cores > 1)
    loop.spin.stop()
    loop.idle(1)
    loop.answer()
    assert not loop.ready
