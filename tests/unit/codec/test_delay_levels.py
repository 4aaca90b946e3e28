from __future__ import annotations

import pytest

from escrowmq.codec.delay_levels import are_delay_levels, delay_levels


def test_levels_are_counted_from_one() -> None:
    assert delay_levels("1s 5m 2h  1d") == {1: 1000, 2: 300_000, 3: 7_200_000, 4: 86_400_000}


@pytest.mark.parametrize(
    ("text", "is_readable"),
    [("1s 5m 2h 1d", True), ("", True), ("1s 5", False), ("s", False), ("1w", False)],
)
def test_what_is_no_span_is_told(text: str, is_readable: bool) -> None:
    assert are_delay_levels(text) is is_readable
