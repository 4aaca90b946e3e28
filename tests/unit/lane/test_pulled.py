"""The reply to a pull as the native lane writes it, with the records behind it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.command import Command
from escrowmq.base.runs import join_runs
from escrowmq.codec.pulled_reply import encode_pulled, pulled_template
from escrowmq.codec.store_entries import ENTRY
from escrowmq.lane import native
from escrowmq.store.unit_runs import encode_codes, select_runs_in_python

pytestmark = pytest.mark.skipif(
    native.reply_with_runs is None, reason="the lane is not built, or left aside"
)

MEMORY = bytes(range(256)) * 4
BASE = 4096
PLACES = st.one_of(
    st.integers(BASE, BASE + len(MEMORY)),
    st.sampled_from([-1, 0, BASE - 1, BASE + len(MEMORY) - 1, (1 << 62) - 1, 1 << 62]),
)
SIZES = st.one_of(st.integers(1, 64), st.sampled_from([-1, 0, 2000, 0x7FFFFFFF]))
OFFSETS = st.one_of(st.integers(0, 99), st.sampled_from([(1 << 63) - 1, 10**18, -1, -(1 << 63)]))
FLAGS = st.tuples(st.integers(0, 12), st.sampled_from([0, 1, 1 << 30]))
OPAQUE_MAX = (1 << 31) - 1


@given(
    st.lists(st.tuples(PLACES, SIZES, st.integers(0, 3)), max_size=6),
    st.integers(0, 1000),
    st.one_of(st.none(), st.frozensets(st.integers(0, 3), max_size=3)),
    st.integers(0, 5),
    st.sampled_from([-1, 0, 60, 1000, 4000]),
    st.integers(-OPAQUE_MAX - 1, OPAQUE_MAX),
    OFFSETS,
    OFFSETS,
    FLAGS,
    st.sampled_from(["FOUND", "", "100 %b"]),
)
def test_frame_is_as_plain_python_writes_it(
    found: list[tuple[int, int, int]], first: int, codes: frozenset[int] | None, count_max: int,
    size_max: int, opaque: int, low: int, high: int, flags: tuple[int, int], remark: str,
) -> None:  # fmt: skip
    assert native.reply_with_runs is not None
    units = b"".join([ENTRY.pack(*unit) for unit in found])
    frame = native.reply_with_runs(
        units, first, encode_codes(codes), count_max, size_max, MEMORY, BASE,
        pulled_template(0, remark, flags).pieces, opaque, low, high,
    )  # fmt: skip
    chosen = select_runs_in_python(units, first, codes, count_max, size_max)
    body = None
    if chosen is not None and chosen[0]:
        body = join_runs(chosen[0], BASE, len(MEMORY), lambda at, size: MEMORY[at : at + size])
    if chosen is None or body is None:
        assert frame is None
        return
    _, offsets, following, size = chosen
    front = encode_pulled(
        Command(opaque=opaque, is_binary=True), 0, remark, following, low, high, flags, size
    )
    assert frame == (front + body, len(offsets), size, following)


UNITS = ENTRY.pack(BASE, 8, 0)
PIECES = pulled_template(0, "FOUND", (0, 0)).pieces
RIGHT = (UNITS, 0, None, 1, 100, MEMORY, BASE, PIECES, 1, 0, 1)


@pytest.mark.parametrize(
    ("at", "value", "error"),
    [
        (0, "text", TypeError),
        (1, -1, ValueError),
        (2, b"short", ValueError),
        (4, 1 << 40, ValueError),
        (5, "text", TypeError),
        (5, None, TypeError),
        (6, -1, ValueError),
        (6, 1 << 70, OverflowError),
        (7, PIECES[:5], TypeError),
        (7, list(PIECES), TypeError),
        (7, (*PIECES[:-1], None), TypeError),
        (7, (*PIECES[:-1], bytes(65_536)), ValueError),
        (8, 1 << 31, ValueError),
        (8, "1", TypeError),
        (9, None, TypeError),
        (10, 1 << 64, OverflowError),
    ],
)
def test_lane_that_is_given_nonsense_says_so(
    at: int, value: object, error: type[Exception]
) -> None:
    reply: Any = native.reply_with_runs
    assert reply(*RIGHT) is not None
    with pytest.raises(error):
        reply(*RIGHT[:at], value, *RIGHT[at + 1 :])
    with pytest.raises(TypeError):
        reply(*RIGHT[:-1])


def test_more_than_a_frame_may_have_is_left_to_others() -> None:
    reply: Any = native.reply_with_runs
    memory = bytes(9 << 20)
    for size, fits in ((8 << 20, True), ((8 << 20) + 1, False)):
        units = ENTRY.pack(0, size, 0)
        found = reply(units, 0, None, 1, 100, memory, 0, PIECES, 1, 0, 1)
        assert (found is not None) == fits
