from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.filter.evaluate import DEPTH_MAX
from escrowmq.filter.grammar import LENGTH_MAX, compile_sql
from escrowmq.filter.operands import FilterError

# What `SelectorParser.parse(..).evaluate(..)` of rocketmq-filter 5.3.3 says to generated
# expressions: [expression, properties, answer]. "thrown" is an exception while evaluating.
PEER_ANSWERS = json.loads((Path(__file__).parent / "peer_answers.json").read_text())


def answer(expression: str, properties: dict[str, str]) -> str:
    try:
        predicate = compile_sql(expression)
    except FilterError:
        return "refused"
    return {True: "true", False: "false", None: "unknown"}[predicate(properties)]


@pytest.mark.parametrize("outcome", ["true", "false", "unknown", "thrown", "refused"])
def test_the_peer_s_answers_are_ours(outcome: str) -> None:
    cases = [case for case in PEER_ANSWERS if case[2] == outcome]
    assert len(cases) >= 60
    expected = "unknown" if outcome == "thrown" else outcome
    wrong = [case for case in cases if answer(case[0], case[1]) != expected]
    assert wrong == []


@pytest.mark.parametrize(
    ("expression", "properties", "outcome"),
    [
        ("a = 5", {"a": "5"}, True),
        ("a = 5", {}, None),
        ("5 = a", {}, False),  # a missing property on the right alone is false
        ("a = b", {}, True),  # two missing ones are equal
        ("a <> 5", {}, None),
        ("a > 5 AND b = 'x'", {"a": "6", "b": "x"}, True),
        ("a > 5 AND b = 'x'", {"a": "4"}, False),
        ("a > 5 AND b = 'x'", {"b": "x"}, None),
        ("a > 5 OR b = 'x'", {"b": "x"}, True),
        ("a = 5", {"a": "5.0"}, None),  # Integer.valueOf throws at RocketMQ
        ("a = 5.0", {"a": " 5"}, True),
        ("5.5 = a", {}, False),
        ("a > 5.5", {}, None),
        ("a BETWEEN 2 AND 10", {"a": "10"}, True),
        ("a NOT BETWEEN 2 AND 10", {"a": "11"}, True),
        ("a IN ('it''s', 'x')", {"a": "it's"}, True),
        ("a NOT IN ('x')", {}, None),
        ("a IS NULL", {}, True),
        ("a IS NOT NULL", {}, False),
        ("a CONTAINS 'b'", {"a": "abc"}, True),
        ("a NOT CONTAINS 'b'", {}, False),
        ("a STARTSWITH 'a' and a endswith 'c'", {"a": "abc"}, True),
        ("a = TRUE", {"a": "True"}, True),
        ("a", {"a": "true"}, False),  # text is never a truth value
        ("NOT a = 5", {"a": "4"}, False),  # NOT binds tighter than =
        ("NOT (a = 5)", {"a": "4"}, True),
        ("- a = 5", {"a": "-5"}, None),
        ("a > -5", {"a": "-4"}, True),
        ("a > b", {"a": "10", "b": "9"}, True),
        ("/* c */ a = 1 -- d\n OR b = 2", {"b": "2"}, True),
        ("_a = 1 AND $b = 2", {"_a": "1", "$b": "2"}, True),
        ("a = 1 AND b = 1 AND c = 1", {"a": "1", "b": "1", "c": "1"}, True),
        ("a = 1 AND b = 1 AND c = 1", {"a": "1", "c": "1"}, None),
        ("a = 1 AND b = 1 AND c = 1", {"a": "1", "b": "2"}, False),
        ("a = 1 OR b = 1 OR c = 1", {"b": "2"}, None),
        ("a = 1 OR b = 1", {"a": "2", "b": "2"}, False),
    ],
)
def test_meaning(expression: str, properties: dict[str, str], outcome: bool | None) -> None:
    assert compile_sql(expression)(properties) is outcome


@pytest.mark.parametrize(
    ("expression", "position", "expected"),
    [
        ("", 0, "a property, a number"),
        ("a >", 3, "a property, a number"),
        ("a > 'x'", 2, "only numbers and properties have an order"),
        ("a = NULL", 2, "IS NULL"),
        ("TRUE = 1", 5, "another kind"),
        ("a != 1", 2, "no part of SQL92"),
        ('a = "x"', 4, "single quotes"),
        ("a BETWEEN 10 AND 0", 2, "the lower bound comes first"),
        ("a BETWEEN 1 OR 2", 12, "AND is expected"),
        ("5 IN ('x')", 2, "a property in front"),
        ("a IN (5)", 6, "text in single quotes"),
        ("a IN ('x'", 9, "`,` or `)`"),
        ("a CONTAINS 5", 11, "text in single quotes"),
        ("a NOT 5", 6, "BETWEEN, IN, CONTAINS"),
        ("a IS 5", 5, "NULL or NOT NULL"),
        ("a IS NOT 5", 9, "NULL is expected"),
        ("(a = 1", 6, "`)`"),
        ("5", 0, "truth value"),
        ("a = 1 AND 5", 10, "truth value"),
        ("a > 9223372036854775808", 4, "64 bits"),
        ("a > 0.0", 4, "above zero"),
        ("a > 1e999", 4, "finite"),
        ("a = 'x", 4, "no part of SQL92"),
    ],
)
def test_refusals_name_the_place_and_what_would_do(
    expression: str, position: int, expected: str
) -> None:
    with pytest.raises(FilterError) as caught:
        compile_sql(expression)
    assert caught.value.position == position
    assert expected in str(caught.value)
    assert f"character {position + 1}" in str(caught.value)


def test_what_follows_is_looked_at_only_when_strict() -> None:
    assert compile_sql("a = 1 b")({"a": "1"}) is True
    with pytest.raises(FilterError, match="the end, AND or OR is expected at character 7"):
        compile_sql("a = 1 b", is_strict=True)
    assert compile_sql("a = 1 ", is_strict=True)({"a": "1"}) is True


@pytest.mark.parametrize(
    "expression",
    [
        "(" * (DEPTH_MAX + 1) + "a = 1" + ")" * (DEPTH_MAX + 1),
        "NOT " * (DEPTH_MAX + 1) + "a",
        "a" + " IS NULL" * (DEPTH_MAX + 1),
    ],
)
def test_depth_is_bounded(expression: str) -> None:
    with pytest.raises(FilterError, match="nested more than"):
        compile_sql(expression)


def test_the_deepest_expression_is_evaluated() -> None:
    expression = "(" * DEPTH_MAX + "a = 1" + ")" * DEPTH_MAX
    assert compile_sql(expression)({"a": "1"}) is True
    chain = " AND ".join(["a = 1"] * 5000)
    assert compile_sql(chain)({"a": "1"}) is True


def test_length_is_bounded() -> None:
    with pytest.raises(FilterError, match="65536 are allowed"):
        compile_sql("a = 1" + " " * LENGTH_MAX)


@given(st.text(alphabet="ab'()=<>-+/* \n15.,eNOTINISULAD", max_size=60))
def test_any_text_is_compiled_or_refused(text: str) -> None:
    try:
        predicate = compile_sql(text)
    except FilterError:
        return
    assert predicate({"a": "5", "b": "x"}) in (True, False, None)
