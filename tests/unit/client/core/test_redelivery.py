"""Delays of messages that failed."""

import datetime as dt

import pytest

from escrowmq.client.core.redelivery import BROKER_DECIDES, NEVER, delay_level, level_delay_s
from escrowmq.errors import UsageError


@pytest.mark.parametrize(
    ("after", "level"),
    [
        (None, BROKER_DECIDES), (0, 1), (0.5, 1), (1, 1), (1.5, 2), (10, 3), (11, 4), (60, 5),
        (dt.timedelta(minutes=3), 7), (3_601, 18), (7_200, 18),
    ],
)  # fmt: skip
def test_the_next_longer_level_counts(after: dt.timedelta | float | None, level: int) -> None:
    assert delay_level(after) == level


@pytest.mark.parametrize("after", [-1, 7_201, "10 s", float("nan"), dt.timedelta(days=1)])
def test_other_delays_are_refused(after: object) -> None:
    with pytest.raises(UsageError, match="after="):
        delay_level(after)  # type: ignore[arg-type]


def test_a_level_is_a_delay_and_none_is_the_callers() -> None:
    assert [level_delay_s(level, 0.25) for level in (1, 2, 18)] == [1, 5, 7_200]
    assert [level_delay_s(level, 0.25) for level in (BROKER_DECIDES, NEVER)] == [0.25, 0.25]
