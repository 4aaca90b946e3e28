from __future__ import annotations

from escrowmq.http2.frames import WINDOW_MAX
from escrowmq.http2.windows import ReceiveWindow, SendWindow


def test_room_is_given_back_from_half_a_window_on() -> None:
    inflow = ReceiveWindow(100)
    assert inflow.count_received(49)
    assert inflow.take_update() == 0
    assert inflow.count_received(51)
    assert inflow.take_update() == 100
    assert not inflow.count_received(101)


def test_window_has_a_top() -> None:
    assert SendWindow(WINDOW_MAX - 1).add_granted(1)
    assert not SendWindow(WINDOW_MAX).add_granted(1)


def test_window_may_be_opened_too_far_for_a_moment_too() -> None:
    window = SendWindow(10)
    assert window.change_initial(-15, WINDOW_MAX - 10)
    assert window.left == -5
    assert not window.change_initial(1, WINDOW_MAX + 6)
