"""Groups in memory, each from a seed, with clients and faults."""

from __future__ import annotations

import os

import pytest

from .world import RandomWorld, Violation

SEEDS = range(int(os.environ.get("ESCROWMQ_GROUP_WORLDS", "40")))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_acknowledged_holds(seed: int) -> None:
    world = RandomWorld(seed)
    try:
        world.run()
    except Violation as error:
        pytest.fail("\n".join([*world.story(), str(error)]))
