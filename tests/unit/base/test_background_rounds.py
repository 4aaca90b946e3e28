from __future__ import annotations

import logging

import pytest

from escrowmq.base.background_rounds import REST_MAX_MS, REST_MS, BackgroundRounds


class Part:
    """Something that is due all the time, and fails when told to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.woken: list[int] = []

    def wake(self, now_ms: int) -> None:
        self.woken.append(now_ms)
        if self.error is not None:
            raise self.error

    def wake_at_ms(self) -> int:
        return 0


def make(*parts: Part) -> BackgroundRounds:
    rounds = BackgroundRounds()
    for number, part in enumerate(parts):
        rounds.add(f"part {number}", part.wake, part.wake_at_ms)
    return rounds


def test_a_round_that_fails_stops_no_other() -> None:
    bad, good = Part(ValueError("odd")), Part()
    rounds = make(bad, good)
    rounds.wake(5)
    assert (bad.woken, good.woken) == ([5], [5])
    assert rounds.failures == {"part 0": 1}
    assert rounds.first_error is bad.error


def test_a_round_that_fails_rests_longer_each_time_and_then_goes_on_as_before() -> None:
    bad = Part(ValueError("odd"))
    rounds = make(bad)
    for now_ms in range(0, 4 * REST_MAX_MS, 100):
        rounds.wake(now_ms)
    spans = [after - before for before, after in zip(bad.woken, bad.woken[1:], strict=False)]
    assert spans[0] == REST_MS
    assert spans == sorted(spans)
    assert spans[-1] == REST_MAX_MS
    bad.error = None
    rounds.wake(10 * REST_MAX_MS)
    bad.error = ValueError("again")
    rounds.wake(10 * REST_MAX_MS + 1)
    assert rounds.wake_at_ms() == 10 * REST_MAX_MS + 1 + REST_MS


def test_nobody_is_woken_in_vain_while_all_rest() -> None:
    rounds = make(Part(ValueError("odd")))
    rounds.wake(5)
    assert rounds.wake_at_ms() == 5 + REST_MS


def test_of_failures_that_follow_quickly_one_is_logged_with_its_trace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rounds = BackgroundRounds()

    def fail() -> None:
        raise ValueError("odd")

    with caplog.at_level(logging.ERROR):
        for now_ms in range(100):
            rounds.run_guarded("a step", fail, now_ms)
    assert [record.getMessage() for record in caplog.records] == [
        "a step failed; everything else continues"
    ]
    assert caplog.records[0].exc_info is not None
    assert rounds.failures == {"a step": 100}
