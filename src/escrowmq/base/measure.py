"""A core's metrics, as values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

_COUNTED_MAX: Final = 20_000
"""The most keys that are counted separately, because clients choose the names. Further keys are not
counted."""


Kind = Literal["gauge", "counter", "histogram"]


class Sample(msgspec.Struct, frozen=True):
    """One value, and the values of the family's labels."""

    of: tuple[str, ...]
    value: float


class Distribution(msgspec.Struct, frozen=True):
    """A cumulative histogram; the last bound is infinity."""

    of: tuple[str, ...]
    buckets: tuple[tuple[float, int], ...]
    sum: float


class MetricFamily(msgspec.Struct, frozen=True):
    """The samples of one metric."""

    name: str
    """The metric's name without `_total`, which is added to counters where they are exported."""

    kind: Kind
    text: str
    labels: tuple[str, ...] = ()
    samples: tuple[Sample | Distribution, ...] = ()


def unlabelled_metric(name: str, kind: Kind, text: str, value: float) -> MetricFamily:
    """Return a metric without labels."""
    return MetricFamily(name, kind, text, (), (Sample((), value),))


def metric_by_topic(name: str, kind: Kind, text: str, values: Mapping[str, float]) -> MetricFamily:
    """Return a metric with one sample per topic."""
    samples = tuple(Sample((topic,), value) for topic, value in values.items())
    return MetricFamily(name, kind, text, ("topic",), samples)


class KeyedCounts:
    """Numbers of occurrences by key."""

    def __init__(self) -> None:
        self.of: dict[tuple[str, ...], int] = {}

    def add(self, *of: str) -> None:
        """Count one more occurrence of this key, given by its parts."""
        count = self.of.get(of, 0)
        if count or len(self.of) < _COUNTED_MAX:
            self.of[of] = count + 1

    def remove(self, name: str, *, at: int) -> None:
        """Remove the counts whose key has this name at index `at`."""
        for key in [key for key in self.of if key[at] == name]:
            del self.of[key]

    def samples(self, *before: str) -> tuple[Sample, ...]:
        """Return all counts as samples. The values `before` come before the parts of the key as
        labels."""
        return tuple(Sample((*before, *of), count) for of, count in self.of.items())
