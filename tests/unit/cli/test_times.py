from __future__ import annotations

import argparse
from collections.abc import Iterator

import pytest

from escrowmq.cli.main import build_parser
from escrowmq.cli.times import (
    parse_amount,
    parse_count,
    parse_duration_ms,
    parse_seconds,
    parse_time_ms,
    parse_whole,
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
    for text in ("soon", "253402300800000", "9" * 5_000):
        with pytest.raises(argparse.ArgumentTypeError, match="is not a time"):
            parse_time_ms(text)


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


@pytest.mark.parametrize("text", ["-1", "1.5", "1e3", "9" * 19, "9" * 5_000, "first", ""])
def test_an_offset_is_a_whole_number_from_zero_on(text: str) -> None:
    assert parse_whole("0") == 0
    assert parse_whole(str((1 << 63) - 1)) == (1 << 63) - 1
    with pytest.raises(argparse.ArgumentTypeError, match="a whole number from 0 to 92233"):
        parse_whole(text)


CHECKED_LATER = {
    "port", "http_port", "grpc_port", "nameserver_port",  # when they are bound; -1 means none
    "queues", "read_queues", "write_queues", "attempts", "retry_queues", "rate", "rounds",
}  # fmt: skip
"""Numbers whose bounds are in the error of what they are for."""


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    if (fill := getattr(parser, "declare_options", None)) is not None:
        fill()
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                yield from parsers(one)


def test_no_option_takes_a_negative_number_without_a_look() -> None:
    """`store check --index-slots -1` said that an index was damaged, `store dump --queue -1` showed
    nothing, and `tx list --min-age-ms -5` told the words of the protocol."""
    found = {a.dest for one in parsers(build_parser()) for a in one._actions if a.type is int}
    assert found <= CHECKED_LATER
    found = {a.dest for one in parsers(build_parser()) for a in one._actions if a.type is float}
    assert not found
