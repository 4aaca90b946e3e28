"""Whole worlds from seeds: broker, clients, network and disk with their faults, and a judge.

More of them: `python -m escrowmq.testing.sim --seeds 0:10000 --jobs 2`."""

import pytest

from escrowmq.testing.sim.world import World

SEEDS = 200
BLOCK = 20


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_every_promise_is_kept_whatever_happens(first: int) -> None:
    for seed in range(first, first + BLOCK):
        result = World(seed).run()
        assert result.done["audits"], seed


@pytest.mark.parametrize("seed", [3, 11])
def test_a_seed_is_one_world(seed: int) -> None:
    first, second = World(seed), World(seed)
    assert first.run() == second.run()
    assert first.stage.trace(400) == second.stage.trace(400)
    assert {path: file.live for path, file in first.disk.files.items()} == {
        path: file.live for path, file in second.disk.files.items()
    }


def test_the_worlds_are_full_of_faults() -> None:
    """What the seeds of a commit meet; a fault that is never fired proves nothing."""
    faults: set[str] = set()
    for seed in range(40):
        faults |= World(seed).run().faults.keys()
    assert faults >= {
        "END contradicted",
        "END doubled",
        "END late",
        "END lost",
        "answer late",
        "answer lost",
        "answer unknown",
        "answer wrong",
        "broker paused",
        "clean restart",
        "connection cut",
        "consumer crash",
        "disk full",
        "group gone for good",
        "group offline",
        "half-open connection",
        "late bytes",
        "power lost",
        "process killed",
        "producer crash",
        "request doubled",
        "slow disk",
        "sync fails",
    }
