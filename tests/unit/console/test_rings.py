from __future__ import annotations

from escrowmq.console import rings
from escrowmq.console.rings import SIZE, Ring, Rings


def test_a_ring_has_the_newest_values() -> None:
    ring = Ring()
    assert ring.last(5) == []
    for tick in range(SIZE + 10):
        ring.add(tick, tick)
    assert ring.last(3) == [SIZE + 7, SIZE + 8, SIZE + 9]
    assert len(ring.last(SIZE * 2)) == SIZE


def test_what_nobody_knew_is_a_gap() -> None:
    ring = Ring()
    ring.add(10, 1)
    ring.add(11, None)
    ring.add(14, 2)
    assert ring.last(9) == [1, None, None, None, 2]


def test_a_long_rest_leaves_nothing_but_gaps() -> None:
    ring = Ring()
    ring.add(1, 5)
    ring.add(10_000_000, 6)
    assert ring.last(SIZE)[:-1] == [None] * (SIZE - 1)
    assert ring.last(1) == [6]


def test_two_values_of_one_moment_are_one() -> None:
    ring = Ring()
    ring.add(1, 5)
    ring.add(1, 6)
    assert ring.last(9) == [5]


def test_of_too_many_curves_the_one_that_rested_longest_goes() -> None:
    found = Rings()
    for nth in range(rings.SERIES_MAX):
        found.add(str(nth), 1, nth)
    found.add("0", 2, 7)
    found.add("new", 2, 1)
    assert found.last("0") == [0, 7]
    assert found.last("1") == []
    assert found.last("never") == []
