"""kill -9 in the middle of everything, again and again on one store, and a recount after each."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.codec.record import decode_record

from .link import Link, heartbeat, read_queue
from .server import Server
from .writer import COMMIT, GROUP, QUEUES, ROLLBACK, TOPIC, Half, Ledger, Writer

ROUNDS = int(os.environ.get("ESCROWMQ_CRASH_ROUNDS", "3"))
SEED = int(os.environ.get("ESCROWMQ_CRASH_SEED", "1"))
WRITERS = 3
SETTLED_S = 60
SETTINGS = (
    "mappedFileSizeCommitLog=1048576",
    "mappedFileSizeConsumeQueue=6000",
    "maxHashSlotNum=500",
    "maxIndexNum=2000",
    "transactionTimeOut=200",
    "transactionCheckInterval=500",
)

pytestmark = pytest.mark.crash


def options(flush: str) -> list[str]:
    return [part for pair in (*SETTINGS, f"flushDiskType={flush}") for part in ("--set", pair)]


def load_and_kill(folder: Path, ledger: Ledger, number: int, chance: random.Random) -> None:
    """Write until a random number of answers has come, then kill the server."""
    flush = chance.choice(("ASYNC_FLUSH", "SYNC_FLUSH"))
    with Server(folder, *options(flush)) as server:
        writers = [
            Writer(ledger, server.broker, f"r{number}w{n}", chance.getrandbits(32))
            for n in range(WRITERS)
        ]
        for writer in writers:
            writer.start()
        ledger.wait_for(chance.randrange(20, 1_500), SETTLED_S)
        server.kill()
        for writer in writers:
            writer.join(SETTLED_S)
            assert writer.fault is None, writer.fault


def recount(link: Link, ledger: Ledger) -> Counter[bytes]:
    """Read everything, and hold it against the ledger."""
    found: Counter[bytes] = Counter()
    for queue_id in range(QUEUES):
        messages = read_queue(link, TOPIC, queue_id)
        assert [m.queue_offset for m in messages] == list(range(len(messages)))
        found.update(message.body for message in messages)
    lost = ledger.acknowledged - found.keys()
    assert not lost, f"{len(lost)} acknowledged messages are lost"
    assert found.keys() <= ledger.sent | ledger.verdicts.keys()
    twice = [body for body, count in found.items() if count > 1]
    assert not twice, f"{len(twice)} messages are there twice"
    for body, verdict in ledger.verdicts.items():
        assert verdict == COMMIT or not found[body], "a rolled-back message is there"
    for half in ledger.halves.values():
        if half.is_end_acknowledged and half.verdict == COMMIT:
            assert found[half.body] == 1, "a committed message is lost"
    return found


def contradict(link: Link, ledger: Ledger, chance: random.Random) -> None:
    """Repeat ends and contradict them: the first one stands, before a crash and after it."""
    ended = [half for half in ledger.halves.values() if half.is_end_acknowledged]
    some = chance.sample(ended, min(50, len(ended)))
    repeats = [Command(code=Request.END_TRANSACTION, ext=half.end_fields()) for half in some]
    assert {reply.code for reply in link.ask_all(repeats)} <= {0}
    others = []
    for half in some:
        other = ROLLBACK if half.verdict == COMMIT else COMMIT
        fields = half.end_fields() | {"commitOrRollback": str(other)}
        others.append(Command(code=Request.END_TRANSACTION, ext=fields))
    assert {reply.code for reply in link.ask_all(others)} <= {200, 201}


def settle(link: Link, ledger: Ledger) -> None:
    """Answer the checks until every transaction that was acknowledged has its end."""
    heartbeat(link, GROUP)
    wanted = {h.body for h in ledger.halves.values() if h.verdict == COMMIT}
    deadline = time.monotonic() + SETTLED_S
    while wanted:
        assert time.monotonic() < deadline, f"{len(wanted)} transactions have no end"
        for check in link.requests:
            message = decode_record(check.body)
            assert check.ext is not None
            half = Half(
                body=message.body,
                verdict=ledger.verdicts[message.body],
                queue_offset=int(check.ext["tranStateTableOffset"]),
                log_offset=int(check.ext["commitLogOffset"]),
            )
            link.tell(Request.END_TRANSACTION, half.end_fields(is_from_check=True))
        link.requests.clear()
        link.listen(0.3)
        if not link.requests:
            wanted -= recount(link, ledger).keys()


def test_nothing_acknowledged_is_lost_and_nothing_is_there_twice(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    ledger = Ledger()
    folder = tmp_path / "store"
    for number in range(ROUNDS):
        load_and_kill(folder, ledger, number, chance)
        with Server(folder, *options("ASYNC_FLUSH")) as server:
            link = Link(server.broker)
            recount(link, ledger)
            contradict(link, ledger, chance)
            link.close()
            server.kill()
    with Server(folder, *options("ASYNC_FLUSH")) as server:
        link = Link(server.broker)
        settle(link, ledger)
        found = recount(link, ledger)
        link.close()
        assert server.stop() == 0
    assert len(ledger.acknowledged) > 10 * ROUNDS
    assert {body for body, v in ledger.verdicts.items() if v == ROLLBACK}.isdisjoint(found)
