from __future__ import annotations

import datetime as dt

import pytest

from escrowmq.cli.main import build_parser
from escrowmq.cli.offset import _parse_position
from escrowmq.errors import UsageError


def test_a_place_is_a_word_or_a_moment() -> None:
    assert _parse_position("first") == "first"
    assert _parse_position("1700000000000") == dt.datetime.fromtimestamp(1_700_000_000, dt.UTC)
    assert _parse_position("2026-11-21T10:00+01:00").isoformat() == "2026-11-21T10:00:00+01:00"
    midnight = _parse_position("00:00")
    assert (midnight.hour, midnight.minute) == (0, 0)
    assert midnight.utcoffset() is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [("soon", "09:00"), ("2026-11-21T10:00", "has no zone"), ("25:00", "not a time of day")],
)
def test_another_word_is_refused_with_what_is_expected(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        _parse_position(text)


def test_a_dry_run_is_asked_for() -> None:
    words = ["offset", "reset", "G", "T", "--to", "last"]
    assert not build_parser().parse_args(words).dry_run
    assert build_parser().parse_args([*words, "--dry-run"]).dry_run
