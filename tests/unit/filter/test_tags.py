from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.codec.hashes import tags_code
from escrowmq.filter.operands import FilterError
from escrowmq.filter.tags import format_tags, parse_tags


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_star_and_nothing_let_everything_pass(expression: str | None) -> None:
    tags = parse_tags(expression, code_of=tags_code)
    assert tags.is_all
    assert tags.expression == "*"
    assert tags.codes == frozenset()
    assert tags.matches_code(0)
    assert tags.matches(None)


def test_tags_are_trimmed_and_hashed_as_java_does() -> None:
    tags = parse_tags(" TagA||  TagB || ", code_of=tags_code)
    assert tags.tags == {"TagA", "TagB"}
    assert tags.codes == {2598919, 2598920}
    assert not tags.is_all
    assert tags.matches("TagA")
    assert not tags.matches("TagC")
    assert not tags.matches(None)
    assert tags.matches_code(2598919)
    assert not tags.matches_code(0)


def test_only_the_low_half_of_a_queue_code_is_compared() -> None:
    tags = parse_tags("polygenelubricants", code_of=tags_code)
    assert tags.codes == {-(2**31)}
    assert tags.matches_code(-(2**31))
    assert tags.matches_code(2**31)


@pytest.mark.parametrize("expression", [" ", " || ", "\t"])
def test_blanks_alone_let_nothing_pass(expression: str) -> None:
    tags = parse_tags(expression, code_of=tags_code)
    assert tags.tags == frozenset()
    assert not tags.is_all
    assert not tags.matches_code(0)


@pytest.mark.parametrize("expression", ["||", "||||"])
def test_bars_alone_are_refused(expression: str) -> None:
    with pytest.raises(FilterError, match="names no tag"):
        parse_tags(expression, code_of=tags_code)


@given(st.frozensets(st.from_regex(r"[A-Za-z0-9_]{1,8}", fullmatch=True), max_size=5))
def test_format_is_read_back(tags: frozenset[str]) -> None:
    assert parse_tags(format_tags(tags), code_of=tags_code).tags == tags
