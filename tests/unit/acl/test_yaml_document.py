from __future__ import annotations

import contextlib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.acl.yaml_document import DocumentError, encode_yaml, parse_yaml
from escrowmq.base.fixed_limits import ACL_FILE_SIZE_MAX
from escrowmq.errors import UsageError


def test_every_value_is_the_text_that_stands_there() -> None:
    text = b"a: 0x1234567\nb: no\nc: 1_000\nd: 2001-01-01\ne: '~'\nf: 007\ng: 1e9\n"
    assert parse_yaml(text) == {
        "a": "0x1234567", "b": "no", "c": "1_000", "d": "2001-01-01", "e": "~", "f": "007",
        "g": "1e9",
    }  # fmt: skip


@pytest.mark.parametrize("text", ["a:", "a: ~", "a: null", "a: NULL", "a: Null"])
def test_what_is_not_there_is_nothing(text: str) -> None:
    assert parse_yaml(text.encode()) == {"a": None}


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n"])
def test_an_empty_file_has_no_document(text: str) -> None:
    assert parse_yaml(text.encode()) is None


def test_lists_and_members_in_both_styles() -> None:
    text = b"a: [x, {b: c}]\nd:\n- e\n- f: g\n  h:\n  - i\n"
    assert parse_yaml(text) == {"a": ["x", {"b": "c"}], "d": ["e", {"f": "g", "h": ["i"]}]}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: 1\na: 2", "line 2: a name is given twice"),
        ("a: &x 1\nb: *x", "line 1: an anchor or a tag"),
        ("a: *x", "line 1: an alias"),
        ("a: !!python/object:os.system x", "line 1: an anchor or a tag"),
        ("a: !!str 1", "line 1: an anchor or a tag"),
        ("? [a]\n: b", "line 1: a name is expected"),
        ("a: 1\n---\nb: 2", "line 2: a second document"),
        ("[[[[[[[[[1]]]]]]]]]", "more than 8 levels"),
        ("a: 'secret", "this is not YAML"),
        ("a:\n\tb: c", "line 2: this is not YAML"),
    ],
)
def test_what_could_be_taken_in_two_ways_is_refused(text: str, reason: str) -> None:
    with pytest.raises(DocumentError, match=reason):
        parse_yaml(text.encode())


def test_a_complaint_quotes_nothing_of_the_file() -> None:
    with pytest.raises(DocumentError) as caught:
        parse_yaml(b"accounts:\n- secretKey: 'topsecret\n  x: ]\n")
    assert "topsecret" not in str(caught.value)


def test_files_have_bounds_and_are_utf8() -> None:
    with pytest.raises(DocumentError, match=f"{ACL_FILE_SIZE_MAX} are allowed"):
        parse_yaml(b"#" * (ACL_FILE_SIZE_MAX + 1))
    with pytest.raises(DocumentError, match="byte 3 is not UTF-8"):
        parse_yaml(b"a: \xff")
    assert parse_yaml(b"\xef\xbb\xbfa: b") == {"a": "b"}


def test_the_parser_without_the_c_library_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"a: [x, 'null', null]\nb: ~\n"
    found = parse_yaml(text)
    monkeypatch.setattr("escrowmq.acl.yaml_document._PARSER", yaml.SafeLoader)
    assert parse_yaml(text) == found == {"a": ["x", "null", None], "b": None}


VALUES = st.recursive(
    st.none() | st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text("abcxyz", min_size=1), inner, max_size=4)
    ),
    max_leaves=4,
)


@given(value=VALUES)
def test_what_is_written_reads_back(value: object) -> None:
    assert parse_yaml(encode_yaml(value)) == value


@given(data=st.binary(max_size=200) | st.text("-[]{}:,&*!|>'\"%@`#? \n\tab~01").map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(UsageError):
        parse_yaml(data)
