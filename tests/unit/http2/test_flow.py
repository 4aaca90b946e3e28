from __future__ import annotations

import pytest

from escrowmq.http2.flow import Allowance, Inflow, Outflow
from escrowmq.http2.frames import WINDOW_MAX, ConnectionFault


def test_room_is_given_back_from_half_a_window_on() -> None:
    inflow = Inflow(100)
    assert inflow.take(49)
    assert inflow.give_back() == 0
    assert inflow.take(51)
    assert inflow.give_back() == 100
    assert not inflow.take(101)


def test_window_has_a_top() -> None:
    assert Outflow(WINDOW_MAX - 1).open(1)
    assert not Outflow(WINDOW_MAX).open(1)


def test_allowance_grows_with_time() -> None:
    allowance = Allowance("pings", most=2, per_s=10)
    for now_ms in (0, 0, 200, 200):
        allowance.spend(now_ms)
    with pytest.raises(ConnectionFault, match="too many pings: 2 at once and 10 a second"):
        allowance.spend(299)


def test_allowance_grows_with_work_up_to_its_most() -> None:
    allowance = Allowance("pings", most=2, per_s=10)
    allowance.spend(0)
    allowance.earn(100)
    allowance.spend(0)
    allowance.spend(0)
    with pytest.raises(ConnectionFault):
        allowance.spend(0)
