"""Whole worlds from seeds: broker, clients, network and disk with their faults, and a judge.

More of them: `python -m tests.sim --seeds 0:10000 --jobs 2`."""

from __future__ import annotations

import functools

import pytest
from tests.sim.kinds import DONE, FAULTS
from tests.sim.world import Result, World

SEEDS = 60
"""As few as everything happens in."""

BLOCK = 20


@functools.cache
def played(seed: int) -> Result:
    """What the world of a seed was like; played once, whoever asks."""
    return World(seed).run()


@pytest.mark.parametrize(
    "first",
    [
        *range(0, SEEDS, BLOCK),
        *(pytest.param(first, marks=pytest.mark.long) for first in range(SEEDS, 200, BLOCK)),
    ],
)
def test_every_promise_is_kept_whatever_happens(first: int) -> None:
    for seed in range(first, first + BLOCK):
        assert played(seed).done["audits"], seed


@pytest.mark.parametrize("seed", [3, 11])
def test_a_seed_is_one_world(seed: int) -> None:
    first, second = World(seed), World(seed)
    assert first.run() == second.run()
    assert first.stage.trace(400) == second.stage.trace(400)
    assert {path: file.live for path, file in first.disk.files.items()} == {
        path: file.live for path, file in second.disk.files.items()
    }


def test_everything_happens_in_the_worlds_of_a_commit() -> None:
    """What never happens proves nothing."""
    results = [played(seed) for seed in range(SEEDS)]
    assert FAULTS - {kind for result in results for kind in result.faults} == set()
    assert DONE - {kind for result in results for kind in result.done} == set()
