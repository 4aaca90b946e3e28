"""A store whose process is killed, started again, and then loses power: a start calls durable only
what it has made so."""

import random

import pytest
from tests.simulation.test_store_crash import Run, message, verify

from escrowmq.testing.disk import CrashLoss, SimDisk


@pytest.mark.parametrize("seed", range(80))
def test_power_lost_after_a_kill_takes_nothing_that_a_start_called_durable(seed: int) -> None:
    chance = random.Random(seed)
    disk = SimDisk()
    run = Run(disk, is_sync=chance.random() < 0.5, seed=seed)
    run.boot = "first boot"
    run.store._state.boot = run.boot
    run.store.open(run.now_ms)
    for number in range(chance.randint(1, 80)):
        run.now_ms += chance.randint(0, 9)
        one = message(number, run.chance)
        put = run.store.put(one, run.now_ms)
        run.written[put.log_offset] = (one, put)
        if chance.random() < 0.05:
            run.sync()
    disk.restart()
    run.store = type(run.store)(disk, run.store.settings, boot=run.boot)
    run.store.open(run.now_ms)
    assert run.store.durable_offset == run.store.end_offset
    promised = dict(run.written)
    run.crash(chance, chance.choice([loss for loss in CrashLoss if loss is not CrashLoss.NOTHING]))
    verify(run, promised, is_kill=False)
