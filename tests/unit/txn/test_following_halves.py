"""A copy reads the halves of its log as they come; a start reads them all at once. Both know the
same."""

from __future__ import annotations

import random

import pytest

from escrowmq.base.message import Message, Topic
from escrowmq.base.own_properties import TRANSACTION
from escrowmq.store.store import Store
from escrowmq.txn.engine import TransactionEngine
from escrowmq.txn.half_lifecycle import Halves
from escrowmq.txn.half_records import copy_to
from escrowmq.txn.pending_recovery import HalvesRecovery
from escrowmq.txn.state import Verdict
from tests.harness.examples import seeds

from .ground import HOST, Ground

COUNT = 60


def reader(ground: Ground, store: Store) -> tuple[Halves, HalvesRecovery]:
    engine = TransactionEngine(
        store, ground.settings, host=HOST, as_delivered=lambda final, now_ms: final
    )
    recovery = HalvesRecovery(engine, store)
    recovery.read_only(ground.now_ms, half_offset=0, op_offset=0, is_sound=True)
    return engine.halves, recovery


def known(halves: Halves) -> object:
    pending = halves.pending
    return (
        {number: pending.row(number) for number in pending},
        {number: halves.bundles.members(number) for number in pending},
        {topic: count for topic, count in halves.meter.pending.items() if count},
        {number: halves.ledger.outcome(number) for number in range(COUNT)},
    )


@pytest.mark.parametrize("seed", seeds(40))
def test_a_copy_knows_what_a_start_finds(seed: int) -> None:
    chance = random.Random(seed)
    ground = Ground()
    copied, recovery = reader(ground, ground.store)
    halves = []
    for number in range(COUNT):
        group = chance.choice(("PG", "P2"))
        more = {TRANSACTION: f"{group}-{number // 10}"} if chance.random() < 0.2 else {}
        halves.append(ground.prepare(b"%d" % number, group=group, **more))
        for _ in range(chance.randrange(3)):
            half = chance.choice(halves)
            verdict = chance.choice((Verdict.COMMIT, Verdict.ROLLBACK))
            ground.end(half, verdict)
        if chance.random() < 0.3:
            recovery.read_appended(ground.now_ms)
        ground.now_ms += 10
    recovery.read_appended(ground.now_ms)
    assert len(copied.pending) == len(ground.engine.halves.pending) > 0
    found, _ = reader(ground, ground.store)
    assert known(copied) == known(found)


def test_a_half_that_was_stored_again_replaces_the_first() -> None:
    ground = Ground()
    copied, recovery = reader(ground, ground.store)
    first = ground.prepare(b"paid")
    recovery.read_appended(ground.now_ms)
    again = copy_to(first, Topic.HALF, TRANSACTION_CHECK_TIMES="3")
    ground.store.put(again, ground.now_ms)
    op = Message(topic=Topic.OP, body=b"0,", properties={"WAIT": "true", "TAGS": "d"})
    ground.store.put(op, ground.now_ms)
    recovery.read_appended(ground.now_ms)
    assert list(copied.pending) == [1]
    found, _ = reader(ground, ground.store)
    assert known(copied) == known(found)


def test_all_messages_of_one_transaction_end_at_a_copy() -> None:
    ground = Ground()
    copied, recovery = reader(ground, ground.store)
    first, _ = (ground.prepare(b"%d" % n, **{TRANSACTION: "t"}) for n in range(2))
    recovery.read_appended(ground.now_ms)
    assert copied.bundles.members(first.queue_offset) == [0, 1]
    ground.end(first, Verdict.COMMIT, count=2)
    recovery.read_appended(ground.now_ms)
    found, _ = reader(ground, ground.store)
    assert len(copied.pending) == 0
    assert known(copied) == known(found)
