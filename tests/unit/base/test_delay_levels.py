from __future__ import annotations

import pytest

from escrowmq.base.delay_levels import DELAY_LEVELS_S, is_valid_levels_text, parse_delay_levels


def test_levels_are_counted_from_one() -> None:
    assert parse_delay_levels("1s 5m 2h  1d") == {1: 1000, 2: 300_000, 3: 7_200_000, 4: 86_400_000}


def test_the_default_is_rocketmqs() -> None:
    assert len(DELAY_LEVELS_S) == 18
    assert DELAY_LEVELS_S[:5] + DELAY_LEVELS_S[-2:] == (1, 5, 10, 30, 60, 3_600, 7_200)


@pytest.mark.parametrize(
    ("text", "is_readable"),
    [("1s 5m 2h 1d", True), ("", True), ("1s 5", False), ("s", False), ("1w", False)],
)
def test_what_is_no_span_is_told(text: str, is_readable: bool) -> None:
    assert is_valid_levels_text(text) is is_readable
