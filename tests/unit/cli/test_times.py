from __future__ import annotations

import argparse
import datetime as dt

import pytest

from escrowmq.cli.times import span_ms, time_ms, today_at
from escrowmq.errors import UsageError


@pytest.mark.parametrize(
    ("text", "ms"),
    [("90s", 90_000), ("5m", 300_000), ("2h", 7_200_000), ("1d", 86_400_000), ("250ms", 250)],
)
def test_spans_have_units(text: str, ms: int) -> None:
    assert span_ms(text) == ms


@pytest.mark.parametrize("text", ["", "5", "m", "-5m", "1.5h", "5 m", "5min", "9" * 13 + "s"])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="write 90s"):
        span_ms(text)


def test_a_time_is_iso_or_a_number() -> None:
    assert time_ms("1700000000000") == 1_700_000_000_000
    assert time_ms("2023-11-14T22:13:20Z") == time_ms("2023-11-14T22:13:20") == 1_700_000_000_000
    with pytest.raises(argparse.ArgumentTypeError, match="is no time"):
        time_ms("soon")


ZONE = dt.timezone(dt.timedelta(hours=1))
NOON_MS = int(dt.datetime(2026, 11, 26, 12, tzinfo=ZONE).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "hour"), [("09:00", 9), ("9:00", 9), ("9:00:00", 9), ("12:00:00", 12), ("00:00", 0)]
)
def test_a_time_of_day_is_today_s_where_one_is(text: str, hour: int) -> None:
    assert today_at(text, NOON_MS, ZONE) == dt.datetime(2026, 11, 26, hour, tzinfo=ZONE)


@pytest.mark.parametrize("text", ["", "first", "9", "2026-11-26T09:00", "09:00Z"])
def test_what_is_no_time_of_day_is_something_else(text: str) -> None:
    assert today_at(text, NOON_MS, ZONE) is None


@pytest.mark.parametrize(
    ("text", "said"), [("24:30", "is no time of day"), ("12:01", "to come today")]
)
def test_a_time_that_cannot_be_meant_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        today_at(text, NOON_MS, ZONE)
