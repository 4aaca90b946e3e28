from __future__ import annotations

import pytest

from escrowmq.delivery.client_clocks import ClientClocks

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize("ahead_ms", [0, 70_000, -70_000])
def test_what_is_late_is_told_apart_from_a_wrong_clock(ahead_ms: int) -> None:
    clocks = ClientClocks()

    def born_ms(left_ms: int, came_ms: int) -> int:
        return clocks.sent_ms(1, left_ms + ahead_ms, came_ms)

    assert born_ms(NOW_MS, NOW_MS) == NOW_MS
    assert born_ms(NOW_MS + 1_000, NOW_MS + 9_000) == NOW_MS + 1_000
    assert clocks.sent_ms(2, NOW_MS, NOW_MS + 9_000) == NOW_MS + 9_000, "another client's first"


def test_the_quickest_request_says_how_clocks_differ() -> None:
    clocks = ClientClocks()
    assert clocks.sent_ms(1, NOW_MS, NOW_MS + 300) == NOW_MS + 300
    assert clocks.sent_ms(1, NOW_MS + 500, NOW_MS + 501) == NOW_MS + 501
    assert clocks.sent_ms(1, NOW_MS + 600, NOW_MS + 900) == NOW_MS + 601


def test_without_a_time_a_request_has_just_left_and_says_nothing_of_clocks() -> None:
    clocks = ClientClocks()
    assert clocks.sent_ms(1, 0, NOW_MS) == NOW_MS
    assert clocks.sent_ms(1, NOW_MS - 5_000, NOW_MS) == NOW_MS
    clocks.forget_client(1)
    clocks.forget_client(1)
    assert clocks.sent_ms(1, NOW_MS - 9_000, NOW_MS) == NOW_MS
