from __future__ import annotations

import argparse

import pytest

from escrowmq.cli.times import (
    parse_amount,
    parse_count,
    parse_duration_ms,
    parse_seconds,
    parse_time_ms,
)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("90s", 90_000), ("5m", 300_000), ("2h", 7_200_000), ("1d", 86_400_000), ("250ms", 250)],
)
def test_spans_have_units(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "5", "m", "-5m", "1.5h", "5 m", "5min", "9" * 13 + "s"])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="write 90s"):
        parse_duration_ms(text)


def test_a_time_is_iso_or_a_number() -> None:
    assert parse_time_ms("1700000000000") == 1_700_000_000_000
    assert (
        parse_time_ms("2023-11-14T22:13:20Z")
        == parse_time_ms("2023-11-14T22:13:20")
        == 1_700_000_000_000
    )
    with pytest.raises(argparse.ArgumentTypeError, match="is not a time"):
        parse_time_ms("soon")


@pytest.mark.parametrize("text", ["inf", "-inf", "nan", "-1", "1e300", "soon", ""])
def test_what_no_timer_can_wait_for_is_refused(text: str) -> None:
    for kind in (parse_seconds, parse_amount):
        with pytest.raises(argparse.ArgumentTypeError, match="a number from 0 to 100000000"):
            kind(text)


def test_a_timeout_is_not_zero_and_a_rate_may_be() -> None:
    assert parse_seconds("0.25") == 0.25
    assert parse_amount("0") == 0
    with pytest.raises(argparse.ArgumentTypeError, match="more than 0 seconds"):
        parse_seconds("0")


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "1e3", "99999999999", "all", ""])
def test_a_count_is_a_whole_number_from_one_on(text: str) -> None:
    """`message find --limit 0` said that no message had the key, and a number that was too large
    that the header had no maxNum."""
    assert parse_count("1") == 1
    with pytest.raises(argparse.ArgumentTypeError, match="a whole number from 1 to 100000000"):
        parse_count(text)
