"""Expressions as trees: rendered to text and compiled, against a naive walk over the tree."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.filter.grammar import compile_sql

Tree = tuple[Any, ...]
NAMES = st.sampled_from(["a", "b", "c"])
ORDERS = {
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
}
LEAVES = st.one_of(
    st.tuples(st.just("order"), NAMES, st.sampled_from(sorted(ORDERS)), st.integers(-99, 99)),
    st.tuples(st.just("order2"), NAMES, st.sampled_from(sorted(ORDERS)), NAMES),
    st.tuples(st.just("same"), NAMES, st.sampled_from(["1", "it's", "x"])),
    st.tuples(st.just("equal"), NAMES, st.integers(0, 9)),
    st.tuples(st.just("null"), NAMES),
    st.tuples(st.just("between"), NAMES, st.integers(0, 5), st.integers(5, 9)),
    st.tuples(st.just("in"), NAMES, st.lists(st.sampled_from(["1", "x", ""]), min_size=1)),
    st.tuples(st.just("has"), NAMES, st.sampled_from(["1", "x", ""])),
)
TREES = st.recursive(
    LEAVES,
    lambda below: st.one_of(
        st.tuples(st.just("and"), below, below),
        st.tuples(st.just("or"), below, below),
        st.tuples(st.just("not"), below),
    ),
    max_leaves=12,
)
PROPERTIES = st.dictionaries(
    NAMES, st.one_of(st.integers(-99, 99).map(str), st.sampled_from(["x", "it's", "1.5", ""]))
)


class ThrownError(Exception):
    pass


def quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def render(tree: Tree) -> str:
    match tree:
        case ("order" | "order2", name, sign, other):
            return f"{name} {sign} {other}"
        case ("same", name, text):
            return f"{name} = {quote(text)}"
        case ("equal", name, number):
            return f"{name} = {number}"
        case ("null", name):
            return f"{name} IS NULL"
        case ("between", name, low, high):
            return f"{name} BETWEEN {low} AND {high}"
        case ("in", name, texts):
            return f"{name} IN ({', '.join(map(quote, texts))})"
        case ("has", name, text):
            return f"{name} CONTAINS {quote(text)}"
        case ("not", below):
            return f"NOT ({render(below)})"
        case (word, left, right):
            return f"({render(left)} {word} {render(right)})"
        case _:
            raise AssertionError(tree)


def whole(text: str) -> int:
    if not text.removeprefix("-").isdigit():
        raise ThrownError
    return int(text)


def real(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ThrownError from error


def walk(tree: Tree, seen: dict[str, str]) -> bool | None:
    match tree:
        case ("not", below):
            value = walk(below, seen)
            return None if value is None else not value
        case ("and" | "or" as word, left, right):
            decided = word == "or"
            answers = []
            for below in (left, right):
                answers.append(walk(below, seen))
                if answers[-1] is decided:
                    return decided
            return None if None in answers else not decided
        case ("null", name):
            return name not in seen
        case ("has", name, text):
            return bool(text) and name in seen and text in seen[name]
        case _:
            return compare(tree, seen)


def compare(tree: Tree, seen: dict[str, str]) -> bool | None:
    name = tree[1]
    if name not in seen:
        return None
    value = seen[name]
    match tree:
        case ("order", _, sign, number):
            return bool(ORDERS[sign](whole(value), number))
        case ("order2", _, sign, other):
            return bool(ORDERS[sign](real(value), real(seen[other]))) if other in seen else None
        case ("same", _, text):
            return bool(value == text)
        case ("equal", _, number):
            return bool(whole(value) == number)
        case ("between", _, low, high):
            return bool(low <= whole(value) <= high)
        case ("in", _, texts):
            return value in texts
        case _:
            raise AssertionError(tree)


@given(TREES, PROPERTIES)
def test_compiled_expressions_answer_as_a_walk_over_the_tree(
    tree: Tree, properties: dict[str, str]
) -> None:
    try:
        expected = walk(tree, properties)
    except ThrownError:
        expected = None
    assert compile_sql(render(tree))(properties) is expected
