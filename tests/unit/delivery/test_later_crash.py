"""Both kinds of later delivery over crashes, from a seed each."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from escrowmq.testing.disk import CrashLoss

from .later import Later

COUNT = 150


def by_level(chance: random.Random) -> dict[str, str]:
    return {"DELAY": chance.choice("123")}


def by_time(chance: random.Random) -> dict[str, str]:
    return {"TIMER_DELAY_MS": str(chance.randrange(1, 20_000))}


def by_either(chance: random.Random) -> dict[str, str]:
    return chance.choice([by_level, by_time])(chance)


@pytest.mark.thorough
@pytest.mark.parametrize("loss", [CrashLoss.NOTHING, CrashLoss.PREFIX, CrashLoss.ALL])
@pytest.mark.parametrize("wish", [by_level, by_time, by_either])
@pytest.mark.parametrize("seed", range(8))
def test_every_durable_message_is_delivered_once_over_crashes(
    seed: int, wish: Callable[[random.Random], dict[str, str]], loss: CrashLoss
) -> None:
    chance = random.Random(seed)
    world = Later(is_sync_flush=chance.random() < 0.5, segment_size=1 << 13)
    durable: set[bytes] = set()
    sent: dict[bytes, int] = {}
    for number in range(COUNT):
        body = b"%d" % number
        properties = {"UNIQ_KEY": f"u{number // 2}", **wish(chance)}
        sent[body] = world.send(body, properties).log_end
        world.puts_fail = chance.random() < 0.1
        world.run(chance.randrange(400))
        world.puts_fail = False
        if chance.random() < 0.3:
            world.sync()
            durable = {each for each, end in sent.items() if end <= world.store.durable_offset}
        if chance.random() < 0.3:
            world.save()
        if chance.random() < 0.1:
            world.crash(loss, chance)
            kept = durable if loss is not CrashLoss.NOTHING else set(sent)
            sent = {each: end for each, end in sent.items() if end <= world.store.end_offset}
            assert kept <= set(sent)
        if chance.random() < 0.03:
            world.restart()
    for _ in range(3):
        world.sync()
        world.run(30_000)
    world.sync()
    found = world.bodies()
    assert len(found) == len(set(found))
    assert set(found) >= durable
    if loss is CrashLoss.NOTHING:
        assert set(found) == {b"%d" % number for number in range(COUNT)}
