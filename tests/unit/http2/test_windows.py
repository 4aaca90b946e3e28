from __future__ import annotations

from escrowmq.http2.frames import WINDOW_MAX
from escrowmq.http2.windows import Inflow, Outflow


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


def test_window_may_be_opened_too_far_for_a_moment_too() -> None:
    window = Outflow(10)
    assert window.resize(-15, WINDOW_MAX - 10)
    assert window.left == -5
    assert not window.resize(1, WINDOW_MAX + 6)
