"""Which units are read at once, and how their records lie in the log."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.runs import RUN
from escrowmq.codec.store_entries import ENTRY
from escrowmq.lane import native
from escrowmq.store.consume_queue import GAP_SIZE
from escrowmq.store.unit_runs import RECORDS_SIZE_MAX, UnitRuns, select_runs, select_runs_in_python

MIB = 1 << 20
LAST = (1 << 62) - 1
"""The last place in the log that a record may begin at."""

Found = tuple[list[tuple[int, int]], list[int], int, int] | None


def units(*records: tuple[int, ...]) -> bytes:
    """Log offset, size, and a code that is 0 where none is given."""
    return b"".join([ENTRY.pack(*record, *(0,) * (3 - len(record))) for record in records])


def plain(
    found: UnitRuns | None,
) -> Found:
    if found is None:
        return None
    runs, offsets, following, size = found
    return list(RUN.iter_unpack(runs)), list(offsets), following, size


@pytest.fixture(params=["plain", "as built"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the native lane, and with it where it is built."""
    if request.param == "plain":
        monkeypatch.setattr(native, "find_runs", None)


both_ways = pytest.mark.usefixtures("way")


@both_ways
def test_records_that_lie_one_behind_the_other_are_one_run() -> None:
    given = units((0, 10), (10, 20), (50, 5), (55, 5))
    assert plain(select_runs(given, 7, None, 32, MIB)) == (
        [(0, 30), (50, 10)],
        [7, 8, 9, 10],
        11,
        40,
    )


@both_ways
def test_what_is_left_out_divides_runs_and_counts_as_looked_at() -> None:
    given = units((0, 10, 1), (10, 10, -2), (20, 10, 1), (30, 10, 3))
    for codes, runs, offsets in (
        ({1}, [(0, 10), (20, 10)], [0, 2]),
        ({1, -2}, [(0, 30)], [0, 1, 2]),
        ({3}, [(30, 10)], [3]),
        (set(), [], []),
    ):
        size = sum(run[1] for run in runs)
        assert plain(select_runs(given, 0, frozenset(codes), 32, MIB)) == (runs, offsets, 4, size)


@both_ways
def test_any_number_of_codes_is_looked_for() -> None:
    given = units(*((at * 10, 10, at) for at in range(40)))
    for count in (1, 15, 16, 17, 39):
        codes = frozenset(range(1, count + 1))
        expected = ([(10, count * 10)], list(range(1, count + 1)), 40, count * 10)
        assert plain(select_runs(given, 0, codes, 64, MIB)) == expected


@both_ways
def test_gaps_are_passed_over() -> None:
    gap = (0, GAP_SIZE)
    given = units(gap, (0, 10), gap, (10, 10), gap)
    assert plain(select_runs(given, 0, None, 32, MIB)) == ([(0, 20)], [1, 3], 5, 20)
    assert plain(select_runs(units(gap, gap), 4, None, 32, MIB)) == ([], [], 6, 0)


@both_ways
def test_no_more_than_wanted_but_one_however_large() -> None:
    given = units((0, 100), (100, 100), (200, 100))
    assert plain(select_runs(given, 0, None, 2, MIB)) == ([(0, 200)], [0, 1], 2, 200)
    assert plain(select_runs(given, 0, None, 32, 250)) == ([(0, 200)], [0, 1], 2, 200)
    assert plain(select_runs(given, 0, None, 32, 10)) == ([(0, 100)], [0], 1, 100)


@both_ways
@pytest.mark.parametrize(
    "odd", [(0, 0), (0, -5), (0, RECORDS_SIZE_MAX + 1), (-1, 10), (LAST + 1, 10)]
)
def test_what_no_writer_can_have_made_is_told(odd: tuple[int, int]) -> None:
    assert select_runs(units(odd), 0, None, 32, MIB) is None
    assert select_runs(units((LAST, 10)), 0, None, 32, MIB) is not None


PLACES = st.sampled_from([0, 100, 200, 300, 1000, LAST, LAST + 1, -1])
SIZES = st.sampled_from([100, 100, 100, 200, GAP_SIZE, 0, -5, RECORDS_SIZE_MAX, -(1 << 31)])
UNITS = st.lists(st.tuples(PLACES, SIZES, st.sampled_from([0, 1, -3])), max_size=8)
CODES = st.none() | st.frozensets(st.sampled_from([0, 1, -3, 9]))


@pytest.mark.skipif(native.find_runs is None, reason="the lane is not built, or left aside")
@given(
    UNITS, CODES, st.integers(0, 4), st.sampled_from([0, 99, 250, MIB, RECORDS_SIZE_MAX]),
    st.integers(0, 1 << 40), st.integers(0, 19),
)  # fmt: skip
def test_both_ways_choose_the_same(
    records: list[tuple[int, int, int]],
    codes: frozenset[int] | None,
    count_max: int,
    size_max: int,
    first: int,
    cut: int,
) -> None:
    assert native.find_runs is not None
    whole = units(*records)
    one_by_one = select_runs_in_python(whole, first, codes, count_max, size_max)
    assert plain(select_runs(whole, first, codes, count_max, size_max)) == plain(one_by_one)
    found = native.find_runs(whole + bytes(cut), first, None, count_max, size_max)
    assert plain(found) == plain(select_runs_in_python(whole, first, None, count_max, size_max))


@pytest.mark.skipif(native.find_runs is None, reason="the lane is not built, or left aside")
def test_compiled_code_refuses_what_it_cannot_hold() -> None:
    find: Any = native.find_runs
    for odd in ((b"", -1, None, 1, 1), (b"", 0, b"1234567", 1, 1), (b"", 0, None, 1, 1 << 40)):
        with pytest.raises(ValueError, match="no place of a queue"):
            find(*odd)
    for strange in (("", 0, None, 1, 1), (b"", None, None, 1, 1), (b"", 0, "", 1, 1), (b"",)):
        with pytest.raises(TypeError):
            find(*strange)
    with pytest.raises(OverflowError):
        find(b"", 1 << 70, None, 1, 1)
