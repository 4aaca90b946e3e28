"""So many a second."""

from __future__ import annotations

import pytest

from escrowmq.errors import UsageError
from escrowmq.pipeline.brokers.pacing import RateLimiter


class Clock:
    def __init__(self) -> None:
        self.at_ms = 1_000

    def now_ms(self) -> int:
        return self.at_ms

    def rest_ms(self, span_ms: int) -> None:
        self.at_ms += span_ms


def test_so_many_a_second_go_and_a_pause_saves_nothing_up() -> None:
    clock = Clock()
    pace = RateLimiter(100, now_ms=clock.now_ms, rest_ms=clock.rest_ms)
    for _ in range(101):
        pace.wait()
    assert clock.at_ms == 2_000
    clock.at_ms += 60_000
    for _ in range(11):
        pace.wait()
    assert clock.at_ms == 62_100


def test_no_bound() -> None:
    clock = Clock()
    pace = RateLimiter(0, now_ms=clock.now_ms, rest_ms=clock.rest_ms)
    for _ in range(1_000):
        pace.wait()
    assert clock.at_ms == 1_000
    with pytest.raises(UsageError, match="a rate of -1"):
        RateLimiter(-1)
