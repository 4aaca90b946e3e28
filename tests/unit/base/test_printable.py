from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.printable import printable, printable_json

ANY_TEXT = st.text(st.characters())  # halves of surrogate pairs as well


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders", "orders"), ("订单 №1 é", "订单 №1 é"), ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"), ("\x9b31m", "\\x9b31m"), ("\x7f", "\\x7f"),
        ("pay\u202etxt.exe", "pay\\u202etxt.exe"), ("a\u2028b\u2029c", "a\\u2028b\\u2029c"),
        ("\u2066x\u2069\u200b\ufeff", "\\u2066x\\u2069\\u200b\\ufeff"), ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
    ],
)  # fmt: skip
def test_what_would_steer_a_terminal_is_shown(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(ANY_TEXT)
def test_the_text_of_anybody_is_one_line_that_shows_all_it_has(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert len(shown.splitlines()) <= 1
    shown.encode()  # standard output can write it
    if text.isprintable():
        assert shown == text


@given(st.recursive(st.text(), lambda some: st.lists(some) | st.dictionaries(st.text(), some)))
def test_json_stays_what_it_says(value: object) -> None:
    shown = printable_json(json.dumps(value, ensure_ascii=False))
    assert shown.isprintable()
    assert json.loads(shown) == value
