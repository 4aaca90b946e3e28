from __future__ import annotations

from escrowmq.console import rings
from escrowmq.console.rings import SIZE, HistoryRing, HistoryRings


def test_a_ring_has_the_newest_values() -> None:
    ring = HistoryRing()
    assert ring.newest_values(5) == []
    for tick in range(SIZE + 10):
        ring.add_value(tick, tick)
    assert ring.newest_values(3) == [SIZE + 7, SIZE + 8, SIZE + 9]
    assert len(ring.newest_values(SIZE * 2)) == SIZE


def test_what_nobody_knew_is_a_gap() -> None:
    ring = HistoryRing()
    ring.add_value(10, 1)
    ring.add_value(11, None)
    ring.add_value(14, 2)
    assert ring.newest_values(9) == [1, None, None, None, 2]


def test_a_long_rest_leaves_nothing_but_gaps() -> None:
    ring = HistoryRing()
    ring.add_value(1, 5)
    ring.add_value(10_000_000, 6)
    assert ring.newest_values(SIZE)[:-1] == [None] * (SIZE - 1)
    assert ring.newest_values(1) == [6]


def test_two_values_of_one_moment_are_one() -> None:
    ring = HistoryRing()
    ring.add_value(1, 5)
    ring.add_value(1, 6)
    assert ring.newest_values(9) == [5]


def test_of_too_many_curves_the_one_that_rested_longest_goes() -> None:
    found = HistoryRings()
    for nth in range(rings.SERIES_MAX):
        found.add_value(str(nth), 1, nth)
    found.add_value("0", 2, 7)
    found.add_value("new", 2, 1)
    assert found.newest_values("0") == [0, 7]
    assert found.newest_values("1") == []
    assert found.newest_values("never") == []
