from __future__ import annotations

import pytest

from escrowmq.cli.main import build_parser
from escrowmq.cli.option_order import _BACK_OPTIONS, move_options


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("serve --log-level debug --data d", "--log-level debug serve --data d"),
        ("serve --log-level=debug", "--log-level=debug serve"),
        ("-n a:1 tx list --state parked", "tx list --state parked -n a:1"),
        ("tx -n a:1 --json list", "tx list -n a:1 --json"),
        ("tx list -n a:1", "tx list -n a:1"),
        ("--context prod -o yaml topic show paid", "topic show paid --context prod -o yaml"),
        ("message send T -- --log-level", "message send T -- --log-level"),
        ("--json message send T -- -n", "message send T --json -- -n"),
        ("broker --data d --port 0", "broker --data d --port 0"),
        ("", ""),
        ("--log-level", "--log-level"),
    ],
)
def test_each_option_comes_where_it_is_expected(words: str, expected: str) -> None:
    assert move_options(words.split()) == expected.split()


def test_the_options_are_those_that_every_action_has() -> None:
    for name, values in _BACK_OPTIONS.items():
        value = {"--timeout": "3", "-o": "json", "--output": "json"}.get(name, "x")
        words = [name, *[value] * values, "tx", "list"]
        assert build_parser().parse_args(move_options(words)).action == "list", name
