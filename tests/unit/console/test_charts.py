from __future__ import annotations

import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.console.charts import (
    POINTS_MAX,
    draw_curve,
    draw_small_curve,
    reduce_values,
    short_number,
)

VALUES = st.lists(st.none() | st.floats(0, 1e12), max_size=2_000)


@given(VALUES)
def test_a_curve_is_small_and_well_formed(values: list[float | None]) -> None:
    drawn = str(draw_small_curve(values, 'lag <of> "g"'))
    ET.fromstring(drawn)
    assert len(drawn) < 4_096
    assert "style=" not in drawn


@given(VALUES)
def test_no_peak_is_lost(values: list[float | None]) -> None:
    known = [value for value in values if value is not None]
    kept = [value for value in reduce_values(values) if value is not None]
    assert len(reduce_values(values)) <= POINTS_MAX
    assert max(kept, default=None) == max(known, default=None)


def test_gaps_divide_a_curve() -> None:
    assert str(draw_small_curve([1, 2, None, 3, 4], "x")).count("<polyline") == 2


def test_a_figure_says_its_newest_value_and_that_it_is_unknown() -> None:
    assert "<strong>7<small> a second" in str(draw_curve([3, 7], "Stored", unit="a second"))
    assert "<strong>unknown<small>" in str(draw_curve([3, None], "Stored"))
    assert "<strong>unknown<small>" in str(draw_curve([], "Stored"))


def test_names_of_others_are_escaped() -> None:
    assert "<script>" not in str(draw_curve([1], "<script>alert(1)</script>"))
    assert "<script>" not in str(draw_small_curve([1], '"><script>alert(1)</script>'))


def test_numbers_are_short() -> None:
    assert [short_number(value) for value in (0, 0.25, 9_999, 12_345, 1_234_567, 2.5e9)] == [
        "0", "0.25", "9999", "12.3 k", "1.23 M", "2.5 G",
    ]  # fmt: skip
