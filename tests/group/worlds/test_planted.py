"""Bugs planted on purpose: the worlds must find each. This guards the guard."""

from __future__ import annotations

import logging

import pytest

from .plants import PLANTS, Plant
from .world import RandomWorld

SEEDS = 400


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    first = PLANTS[plant]
    logging.disable(logging.CRITICAL)
    try:
        assert any(map(is_found, range(first, first + SEEDS))), f"not in {SEEDS} worlds"
    finally:
        logging.disable(logging.NOTSET)


def is_found(seed: int) -> bool:
    try:
        RandomWorld(seed).run()
    except AssertionError:  # a broken promise, or an assertion of the code itself
        return True
    return False
