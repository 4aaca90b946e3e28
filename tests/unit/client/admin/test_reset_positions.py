from __future__ import annotations

import datetime as dt

import pytest

from escrowmq.client.admin.reset_positions import parse_reset_position, parse_time_today
from escrowmq.errors import UsageError

ZONE = dt.timezone(dt.timedelta(hours=1))
NOON_MS = int(dt.datetime(2026, 11, 26, 12, tzinfo=ZONE).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "hour"), [("09:00", 9), ("9:00", 9), ("9:00:00", 9), ("12:00:00", 12), ("00:00", 0)]
)
def test_a_time_of_day_is_today_s_where_one_is(text: str, hour: int) -> None:
    assert parse_time_today(text, NOON_MS, ZONE) == dt.datetime(2026, 11, 26, hour, tzinfo=ZONE)


@pytest.mark.parametrize("text", ["", "first", "9", "2026-11-26T09:00", "09:00Z"])
def test_what_is_no_time_of_day_is_something_else(text: str) -> None:
    assert parse_time_today(text, NOON_MS, ZONE) is None


@pytest.mark.parametrize(
    ("text", "said"), [("24:30", "is not a time of day"), ("12:01", "not come yet today")]
)
def test_a_time_that_cannot_be_meant_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_time_today(text, NOON_MS, ZONE)


def test_a_place_is_a_word_or_a_moment() -> None:
    def read(text: str) -> object:
        return parse_reset_position(text, now_ms=NOON_MS, zone=ZONE)

    assert (read("first"), read("last")) == ("first", "last")
    assert read("1700000000000") == dt.datetime.fromtimestamp(1_700_000_000, dt.UTC)
    assert read("09:00") == dt.datetime(2026, 11, 26, 9, tzinfo=ZONE)


@pytest.mark.parametrize("text", ["soon", "9" * 30, "\u0665", "2026-11-26T09:00", "25:00"])
def test_another_word_is_refused_and_the_option_named(text: str) -> None:
    with pytest.raises(UsageError):
        parse_reset_position(text, now_ms=NOON_MS, zone=ZONE, option="--to")
