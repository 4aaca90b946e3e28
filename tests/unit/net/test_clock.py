from __future__ import annotations

import time
from datetime import datetime, timedelta

import pytest

from escrowmq.net.clock import LocalZone, SystemClock

SECOND_NS = 1_000_000_000


class Machine:
    """What the clock reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall_ns = 1_700_000_000 * SECOND_NS
        self.steady_ns = 5 * SECOND_NS
        monkeypatch.setattr(time, "time_ns", lambda: self.wall_ns)
        monkeypatch.setattr(time, "monotonic_ns", lambda: self.steady_ns)

    def pass_by(self, seconds: int, *, jump: int = 0) -> None:
        self.steady_ns += seconds * SECOND_NS
        self.wall_ns += (seconds + jump) * SECOND_NS


def test_time_goes_on_at_its_pace_when_the_wall_clock_goes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine, clock = Machine(monkeypatch), SystemClock()
    start_ms = clock.now_ms()
    machine.pass_by(10)
    assert clock.now_ms() == start_ms + 10_000
    machine.pass_by(1, jump=-86_400)
    assert clock.now_ms() == start_ms + 11_000
    machine.pass_by(5)
    assert clock.now_ms() == start_ms + 16_000
    machine.pass_by(1, jump=-3_600)
    assert clock.now_ms() == start_ms + 17_000


def test_time_follows_the_wall_clock_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, clock = Machine(monkeypatch), SystemClock()
    start_ms = clock.now_ms()
    machine.pass_by(1, jump=3_600)
    assert clock.now_ms() == start_ms + 3_601_000


def test_only_what_the_clock_shows_is_a_leap(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, clock = Machine(monkeypatch), SystemClock()
    leaps: list[int] = []
    clock.set_leap_listener(leaps.append)
    clock.now_ms()
    machine.pass_by(3_600)
    clock.now_ms()
    assert leaps == []
    machine.pass_by(1, jump=3_600)
    clock.now_ms()
    assert leaps == [3_600_000]
    machine.pass_by(1, jump=-7_200)
    clock.now_ms()
    machine.pass_by(1, jump=3_600)
    clock.now_ms()
    assert leaps == [3_600_000]
    machine.pass_by(1, jump=3_660)
    clock.now_ms()
    assert leaps == [3_600_000, 60_000]


def test_wall_clock_is_asked_once_a_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, clock = Machine(monkeypatch), SystemClock()
    machine.wall_ns += 999_000
    start_ms = clock.now_ms()
    machine.steady_ns += 999
    machine.wall_ns += 3_600 * SECOND_NS
    assert clock.now_ms() == start_ms
    machine.steady_ns += 1
    assert clock.now_ms() == start_ms + 3_600_000


def test_clock_goes_on_from_a_later_time(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, clock = Machine(monkeypatch), SystemClock()
    start_ms = clock.now_ms()
    clock.continue_from(start_ms + 5_000)
    machine.pass_by(1)
    assert clock.now_ms() == start_ms + 6_000
    clock.continue_from(start_ms)
    assert clock.now_ms() == start_ms + 6_000


def test_wall_clock_that_is_set_right_again_leaves_none_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine, clock = Machine(monkeypatch), SystemClock()
    start_ms = clock.now_ms()
    machine.pass_by(1, jump=-3_600)
    assert clock.now_ms() == start_ms + 1_000
    machine.pass_by(1, jump=1_800)
    assert clock.now_ms() == start_ms + 2_000
    machine.pass_by(1, jump=1_800)
    assert clock.now_ms() == start_ms + 3_000 == machine.wall_ns // 1_000_000
    machine.pass_by(1, jump=60)
    assert clock.now_ms() == start_ms + 64_000


def test_time_that_was_gone_on_from_is_not_added_to_what_the_wall_clock_makes_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A machine without a battery begins at an old time, until it is told the right one."""
    machine, clock = Machine(monkeypatch), SystemClock()
    machine.wall_ns -= 7_200 * SECOND_NS
    stored_ms = clock.now_ms() + 7_200_000
    clock.continue_from(stored_ms)
    machine.pass_by(30, jump=7_200)
    assert clock.now_ms() == stored_ms + 30_000 == machine.wall_ns // 1_000_000


def test_clock_is_that_of_the_machine() -> None:
    assert abs(SystemClock().now_ms() - time.time() * 1000) < 5_000


def test_local_zone_knows_summer_and_winter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        zone = LocalZone()
        winter = datetime.fromtimestamp(1_700_000_000, zone)
        summer = datetime.fromtimestamp(1_690_000_000, zone)
        assert (winter.hour, summer.hour) == (23, 6)
        assert winter.utcoffset() == timedelta(hours=1)
        assert summer.utcoffset() == timedelta(hours=2)
        assert (winter.dst(), winter.tzname()) == (timedelta(0), None)
        assert zone.utcoffset(None) is None
        assert zone.dst(None) is None
    finally:
        monkeypatch.undo()
        time.tzset()
