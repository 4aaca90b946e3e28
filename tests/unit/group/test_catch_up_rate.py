"""How much a copy that is behind is sent at once, and how much in a second."""

from __future__ import annotations

import pytest

from escrowmq.group.catch_up_rate import CatchUpRate


@pytest.mark.parametrize("step_ms", [1, 7, 20])
def test_as_much_as_the_rate_says_is_sent(step_ms: int) -> None:
    pace, sent = CatchUpRate(), 0
    for now_ms in range(1_000_000, 1_010_000, step_ms):
        size = pace.allowed_bytes(50_000, now_ms)
        pace.count_sent(size, 50_000)
        sent += size
    assert 490_000 <= sent <= 505_000


def test_what_was_not_sent_lapses() -> None:
    pace = CatchUpRate()
    pace.allowed_bytes(50_000, 1_000)
    assert pace.allowed_bytes(50_000, 900_000) == 1_000


def test_what_was_sent_at_once_is_waited_for() -> None:
    pace = CatchUpRate()
    pace.allowed_bytes(50_000, 1_000)
    pace.count_sent(6_000, 50_000)  # 20 ms were free
    assert pace.allowed_bytes(50_000, 1_050) == 0
    assert pace.allowed_bytes(50_000, pace.next_allowed_ms) > 0
    assert pace.next_allowed_ms == 1_110
