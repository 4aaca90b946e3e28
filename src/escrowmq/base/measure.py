"""Figures that a core tells whoever watches it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

_COUNTED_MAX: Final = 20_000
"""What is counted apart by names that clients choose; what comes later is not counted."""


Kind = Literal["gauge", "counter", "histogram"]


class Sample(msgspec.Struct, frozen=True):
    """One figure, and what it is of: values of the family's labels."""

    of: tuple[str, ...]
    value: float


class Distribution(msgspec.Struct, frozen=True):
    """How many of a thing were at most so big, cumulated; the last bound is infinity."""

    of: tuple[str, ...]
    buckets: tuple[tuple[float, int], ...]
    sum: float


class Family(msgspec.Struct, frozen=True):
    """Figures of one name."""

    name: str
    """Without `_total`, which counters get where they are shown."""

    kind: Kind
    text: str
    labels: tuple[str, ...] = ()
    samples: tuple[Sample | Distribution, ...] = ()


def one(name: str, kind: Kind, text: str, value: float) -> Family:
    """A figure that stands alone."""
    return Family(name, kind, text, (), (Sample((), value),))


def by_topic(name: str, kind: Kind, text: str, values: Mapping[str, float]) -> Family:
    """One for each topic."""
    samples = tuple(Sample((topic,), value) for topic, value in values.items())
    return Family(name, kind, text, ("topic",), samples)


class Counts:
    """How often each of many things has happened."""

    def __init__(self) -> None:
        self.of: dict[tuple[str, ...], int] = {}

    def add(self, *of: str) -> None:
        """Once more."""
        count = self.of.get(of, 0)
        if count or len(self.of) < _COUNTED_MAX:
            self.of[of] = count + 1

    def samples(self, *before: str) -> tuple[Sample, ...]:
        """All counts, with some labels before those of their own."""
        return tuple(Sample((*before, *of), count) for of, count in self.of.items())
