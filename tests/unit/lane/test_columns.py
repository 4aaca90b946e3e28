"""Records on their way into columns, by the native lane: what plain Python says of the same
bytes, and no more than an exception for what does not fit."""

from __future__ import annotations

import itertools
from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.pipeline.records import log_of, messages

from escrowmq.base.message import Message
from escrowmq.codec.properties import decode_properties
from escrowmq.lane import native

pytestmark = pytest.mark.skipif(
    native.find_records is None, reason="the lane is not built, or left aside"
)

LIMIT = 64
"""Entries of a record that the lane takes."""


def places(numbers: list[int]) -> array[int]:
    return array("q", numbers)


def bounds_in(data: bytes) -> list[int]:
    return array("i", data).tolist()


def starts_of(data: bytes) -> list[int] | None:
    assert native.find_records is not None
    found = native.find_records(data)
    return None if found is None else array("q", found).tolist()


def cells_of(data: bytes, cuts: list[tuple[int, int]]) -> list[bytes]:
    assert native.copy_cells is not None
    starts, ends = places([start for start, _ in cuts]), places([end for _, end in cuts])
    bounds, values = native.copy_cells(data, starts, ends)
    return [values[low:high] for low, high in itertools.pairwise(bounds_in(bounds))]


def entries_of(encoded: list[bytes]) -> tuple[bytes, tuple[bytes, bytes] | None]:
    """All of them in one piece, and what the lane finds in it."""
    assert native.find_entries is not None
    ends = list(itertools.accumulate(map(len, encoded)))
    starts = [0, *ends][: len(ends)]
    data = b"".join(encoded)
    return data, native.find_entries(data, places(starts), places(ends))


@settings(max_examples=100, deadline=None)
@given(st.lists(messages, max_size=8))
def test_records_begin_where_the_one_before_ends(found: list[Message]) -> None:
    sizes = [len(log_of([each])) for each in found]
    assert starts_of(log_of(found)) == [0, *itertools.accumulate(sizes)][: len(sizes)]


@pytest.mark.parametrize(
    ("at", "odd"),
    [
        (0, b"\x00\x00\x00\x10"),
        (0, b"\x7f\xff\xff\xff"),
        (0, b"\xff\xff\xff\xff"),
        (4, b"\xcb\xd4\x31\x94"),
    ],
)
def test_what_is_no_record_is_left_to_others(at: int, odd: bytes) -> None:
    data = log_of([Message(topic="t", body=b"x")] * 2)
    half = len(data) // 2
    assert starts_of(data[:half] + data[half : half + at] + odd + data[half + at + 4 :]) is None
    for end in (1, 7, 90, half - 1, half + 1, len(data) - 1):
        assert starts_of(data[:end]) is None


def test_cells_are_the_bytes_between_two_places() -> None:
    assert cells_of(b"abcdef", [(0, 2), (2, 2), (1, 6), (6, 6)]) == [b"ab", b"", b"bcdef", b""]
    assert cells_of(b"", []) == []


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_numbers_are_copied_as_they_are(width: int) -> None:
    assert native.copy_numbers is not None
    data = bytes(range(11))
    ats = [0, 3, 2]
    copied = native.copy_numbers(data, places(ats), width)
    assert copied == b"".join(data[at : at + width] for at in ats)
    for at, odd in ((-1, width), (12 - width, width), (1 << 62, width), (0, 0), (0, 9)):
        with pytest.raises(ValueError, match="do not fit"):
            native.copy_numbers(data, places([0, at]), odd)


@pytest.mark.parametrize("cut", [(-1, 1), (2, 1), (0, 4), (4, 4), (1 << 62, 1 << 62)])
def test_places_outside_of_the_bytes_are_refused(cut: tuple[int, int]) -> None:
    assert native.find_entries is not None
    with pytest.raises(ValueError, match="do not fit"):
        cells_of(b"abc", [(0, 1), cut])
    with pytest.raises(ValueError, match="do not fit"):
        native.find_entries(b"abc", places([0, cut[0]]), places([1, cut[1]]))


_pieces = st.sampled_from([b"a", b"b", b"KEYS", b"\x01", b"\x02", b"\xff", "é".encode()])
_odd = st.lists(_pieces, max_size=24).map(b"".join)


@settings(max_examples=300, deadline=None)
@given(st.lists(_odd, max_size=8))
def test_entries_are_what_the_plain_decoder_says(encoded: list[bytes]) -> None:
    data, found = entries_of(encoded)
    assert found is not None
    entries = array("i", found[1]).tolist()
    triples = list(zip(entries[::3], entries[1::3], entries[2::3], strict=True))
    for (low, high), each in zip(itertools.pairwise(bounds_in(found[0])), encoded, strict=True):
        names = [data[start:middle] for start, middle, _ in triples[low:high]]
        values = [data[middle + 1 : end] for _, middle, end in triples[low:high]]
        assert len(set(names)) == len(names)
        texts = [
            (name.decode("utf-8", "replace"), value.decode("utf-8", "replace"))
            for name, value in zip(names, values, strict=True)
        ]
        plain = decode_properties(each)
        assert dict(texts).keys() == plain.keys()
        if b"\xff" not in each:  # names that are no text may become the same text
            assert dict(texts) == plain


@settings(max_examples=200, deadline=None)
@given(st.lists(_odd, max_size=20), st.sampled_from(["a", "KEYS", "ab", "none"]))
def test_values_of_a_name_are_there_or_marked_as_missing(encoded: list[bytes], name: str) -> None:
    assert native.copy_named is not None
    encoded = [each.replace(b"\xff", b"x") for each in encoded]
    data, found = entries_of(encoded)
    assert found is not None
    bounds, values, there, missing = native.copy_named(data, *found, name.encode())
    cells = [values[low:high] for low, high in itertools.pairwise(bounds_in(bounds))]
    bits = [bool(there[nth // 8] >> nth % 8 & 1) for nth in range(len(encoded))]
    told = [cell.decode() if bit else None for cell, bit in zip(cells, bits, strict=True)]
    assert told == [decode_properties(each).get(name) for each in encoded]
    assert missing == told.count(None)


def test_more_entries_than_the_lane_compares_are_left_to_others() -> None:
    many = b"".join(b"n%d\x01v\x02" % number for number in range(LIMIT + 1))
    assert entries_of([many])[1] is None
    assert entries_of([many[: many.rindex(b"n")]])[1] is not None


def test_nonsense_is_refused() -> None:
    """The lane's own side tells it what it knows; a mistake there costs an exception at most."""
    data, found = entries_of([b"a\x01b\x02", b"c\x01d\x02"])
    assert found is not None
    calls: list[tuple[Any, tuple[Any, ...]]] = [
        (native.find_records, (data,)),
        (native.copy_cells, (data, places([0]), places([1]))),
        (native.copy_numbers, (data, places([0]), 4)),
        (native.find_entries, (data, places([0]), places([4]))),
        (native.copy_named, (data, *found, b"a")),
    ]
    for function, args in calls:
        function(*args)
        with pytest.raises(TypeError):
            function(*args[:-1])
        for nth, odd in itertools.product(range(len(args)), (None, -1, "text", ())):
            with pytest.raises((TypeError, ValueError)):
                function(*args[:nth], odd, *args[nth + 1 :])
    assert native.copy_named is not None
    for bounds in (
        b"",
        b"x",
        *(array("i", each).tobytes() for each in ([-1, 2], [0, 3], [-9, -8])),
    ):
        with pytest.raises(ValueError, match="do not fit"):
            native.copy_named(data, bounds, found[1], b"a")
    for entry in ([-1, 0, 2], [0, 1, 1], [0, 1, 9], [0, 1], [8, 9, 10]):
        with pytest.raises(ValueError, match="do not fit"):
            native.copy_named(data, array("i", [0, 1]), array("i", entry), b"a")
