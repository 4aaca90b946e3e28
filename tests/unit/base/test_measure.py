from __future__ import annotations

from escrowmq.base import measure
from escrowmq.base.measure import KeyedCounts, Sample


def test_things_are_counted_apart_and_shown_with_labels_before_their_own() -> None:
    counts = KeyedCounts()
    for name in ("a", "b", "a"):
        counts.add("T", name)
    assert counts.samples("x") == (Sample(("x", "T", "a"), 2), Sample(("x", "T", "b"), 1))


def test_names_that_come_when_there_are_too_many_are_not_counted() -> None:
    counts = KeyedCounts()
    for number in range(measure._COUNTED_MAX + 5):
        counts.add(str(number))
    counts.add("0")
    assert len(counts.of) == measure._COUNTED_MAX
    assert counts.of["0",] == 2
