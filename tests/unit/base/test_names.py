from __future__ import annotations

import pytest

from escrowmq.base.names import has_name_letters


@pytest.mark.parametrize(
    ("name", "is_allowed"),
    [
        ("orders", True),
        ("%RETRY%g|a_b-9", True),
        ("", False),
        ("a b", False),
        ("a.b", False),
        ("bücher", False),
        ("a\n", False),
    ],
)
def test_names_have_letters_that_rocketmq_allows(name: str, is_allowed: bool) -> None:
    assert has_name_letters(name) is is_allowed
