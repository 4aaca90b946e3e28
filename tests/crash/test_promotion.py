"""A pair whose master is killed in the middle of everything: what its senders were told of is all
at the slave, which is started as master on its folder."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.interop.servers import EscrowServer

from .link import Link
from .test_kill import WRITERS, contradict, recount, settle
from .writer import ROLLBACK, Ledger, Writer

SEEDS = range(int(os.environ.get("ESCROWMQ_CRASH_SEEDS", "2")))
SETTLED_S = 60
SETTINGS: dict[str, Any] = {
    "brokerName": "pair",
    "mappedFileSizeCommitLog": 1_048_576,
    "mappedFileSizeConsumeQueue": 6_000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2_000,
    "transactionTimeOut": 200,
    "transactionCheckInterval": 500,
}

pytestmark = pytest.mark.crash


@contextmanager
def running(
    folder: Path, verb: str, nameserver: str = "", **settings: Any
) -> Iterator[EscrowServer]:
    """A server that is gone at the end."""
    folder.mkdir(exist_ok=True)
    server = EscrowServer(folder, verb=verb, nameserver=nameserver, **settings)
    try:
        yield server
    finally:
        server.kill()


def load_and_kill(master: EscrowServer, ledger: Ledger, chance: random.Random) -> None:
    """Write until so many answers have come, and kill the master."""
    writers = [
        Writer(ledger, master.address, f"w{n}", chance.getrandbits(32)) for n in range(WRITERS)
    ]
    for writer in writers:
        writer.start()
    ledger.wait_for(chance.randrange(200, 2_000), SETTLED_S)
    master.kill()
    for writer in writers:
        writer.join(SETTLED_S)
        assert writer.fault is None, writer.fault


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_acknowledged_is_lost_and_nothing_is_there_twice(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    ledger = Ledger()
    waiting: dict[str, Any] = {
        "brokerRole": "SYNC_MASTER",
        "inSyncReplicas": 2,
        "slaveTimeout": 30_000,
    }
    copying: dict[str, Any] = {"brokerRole": "SLAVE", "brokerId": 1}
    with running(tmp_path / "names", "nameserver") as names:
        address = names.nameserver
        with (
            running(tmp_path / "m", "broker", address, **SETTINGS, **waiting) as master,
            running(tmp_path / "s", "broker", address, **SETTINGS, **copying) as slave,
        ):
            load_and_kill(master, ledger, chance)
            if seed % 2:
                slave.kill()
            else:
                slave.stop()
        with running(tmp_path / "s", "broker", address, **SETTINGS) as promoted:
            link = Link(promoted.address)
            recount(link, ledger)
            contradict(link, ledger, chance)
            settle(link, ledger)
            found = recount(link, ledger)
            link.close()
    assert len(ledger.acknowledged) > 100
    assert {body for body, v in ledger.verdicts.items() if v == ROLLBACK}.isdisjoint(found)
