from __future__ import annotations

import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.console.charts import POINTS_MAX, chart, short, spark, thinned

VALUES = st.lists(st.none() | st.floats(0, 1e12), max_size=2_000)


@given(VALUES)
def test_a_curve_is_small_and_well_formed(values: list[float | None]) -> None:
    drawn = str(spark(values, 'lag <of> "g"'))
    ET.fromstring(drawn)
    assert len(drawn) < 4_096
    assert "style=" not in drawn


@given(VALUES)
def test_no_peak_is_lost(values: list[float | None]) -> None:
    known = [value for value in values if value is not None]
    kept = [value for value in thinned(values) if value is not None]
    assert len(thinned(values)) <= POINTS_MAX
    assert max(kept, default=None) == max(known, default=None)


def test_gaps_divide_a_curve() -> None:
    assert str(spark([1, 2, None, 3, 4], "x")).count("<polyline") == 2


def test_a_figure_says_its_newest_value_and_that_it_is_unknown() -> None:
    assert "<strong>7<small> a second" in str(chart([3, 7], "Stored", unit="a second"))
    assert "<strong>unknown<small>" in str(chart([3, None], "Stored"))
    assert "<strong>unknown<small>" in str(chart([], "Stored"))


def test_names_of_others_are_escaped() -> None:
    assert "<script>" not in str(chart([1], "<script>alert(1)</script>"))
    assert "<script>" not in str(spark([1], '"><script>alert(1)</script>'))


def test_numbers_are_short() -> None:
    assert [short(value) for value in (0, 0.25, 9_999, 12_345, 1_234_567, 2.5e9)] == [
        "0", "0.25", "9999", "12.3 k", "1.23 M", "2.5 G",
    ]  # fmt: skip
