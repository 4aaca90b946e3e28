"""Figures that a core tells whoever watches it."""

from __future__ import annotations

from typing import Literal

import msgspec


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

    kind: Literal["gauge", "counter", "histogram"]
    text: str
    labels: tuple[str, ...] = ()
    samples: tuple[Sample | Distribution, ...] = ()
