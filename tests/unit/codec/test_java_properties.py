from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.fixed_limits import SETTINGS_TEXT_SIZE_MAX
from escrowmq.codec.java_properties import ConfError, parse_java_properties

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
PAIRS = st.lists(st.tuples(WORDS.filter(bool), WORDS), max_size=8)
ESCAPED = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}


def store(text: str, *, is_name: bool) -> str:
    """As java.util.Properties.store writes it."""
    out = ""
    for index, char in enumerate(text):
        if char in ESCAPED:
            out += ESCAPED[char]
        elif char in "=:#!" or (char == " " and (is_name or index == 0)):
            out += "\\" + char
        elif " " <= char <= "~":
            out += char
        else:
            units = char.encode("utf-16-be")
            out += "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
    return out


@given(
    PAIRS, st.sampled_from(["=", ":", " ", " = ", "\t:\f"]), st.sampled_from(["\n", "\r\n", "\r"])
)
def test_what_java_stores_is_read_back(
    pairs: list[tuple[str, str]], between: str, line_end: str
) -> None:
    text = line_end.join(
        "# a comment" + line_end + store(name, is_name=True) + between + store(value, is_name=False)
        for name, value in pairs
    )
    assert parse_java_properties(text) == dict(pairs)


@given(PAIRS, st.data())
def test_line_may_be_continued_anywhere(pairs: list[tuple[str, str]], data: st.DataObject) -> None:
    text = ""
    for name, value in pairs:
        line = store(name, is_name=True) + "=" + store(value, is_name=False)
        cut = data.draw(st.integers(1, len(line)))
        if line[cut - 1] == "\\" or line[cut : cut + 1] in ("", " "):
            text += line + "\n"  # an escape must stay whole, and leading blanks go
        else:
            text += line[:cut] + "\\\n \t" + line[cut:] + "\n"
    assert parse_java_properties(text) == dict(pairs)


@given(st.text(st.sampled_from("ab=: \t\f\\#!\n\ru0041"), max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = parse_java_properties(text)
    except ConfError:
        return
    assert all(isinstance(part, str) for pair in found.items() for part in pair)
    assert len(found) <= text.count("\n") + text.count("\r") + 1


def test_lone_half_of_a_character_is_replaced() -> None:
    assert parse_java_properties("a=\\ud83d!") == {"a": "\ufffd!"}


def test_too_long_text_is_refused_before_it_is_read() -> None:
    line = "a=1\n"
    assert parse_java_properties(line * (SETTINGS_TEXT_SIZE_MAX // 4)) == {"a": "1"}
    with pytest.raises(ConfError, match="leave out"):
        parse_java_properties(line * (SETTINGS_TEXT_SIZE_MAX // 4) + "b")


def test_escape_without_its_digits_is_refused() -> None:
    with pytest.raises(ConfError, match="four hexadecimal digits"):
        parse_java_properties("path=C:\\users")
