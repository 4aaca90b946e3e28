from __future__ import annotations

import argparse

import pytest

from escrowmq.cli.main import build_parser


def read(*words: str) -> argparse.Namespace:
    return build_parser().parse_args(["tx", *words])


@pytest.mark.parametrize("action", ["list", "count", "check"])
def test_an_age_is_a_span_or_milliseconds(action: str) -> None:
    assert read(action, "--older-than", "5m").min_age_ms == 300_000
    assert read(action, "--younger-than", "2h").max_age_ms == 7_200_000
    assert read(action, "--min-age-ms", "7").min_age_ms == 7
    assert read(action).min_age_ms is None


def test_a_span_without_a_unit_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read("list", "--older-than", "90")
    assert "90s, 5m, 2h" in capsys.readouterr().err
