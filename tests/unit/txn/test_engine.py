from __future__ import annotations

import msgspec
import pytest

from escrowmq.base.message import Message, SysFlag, Topic
from escrowmq.txn.end_claim import EndResult
from escrowmq.txn.state import State, Verdict
from tests.harness.exchange import SMALL

from .ground import Ground

COMMIT, ROLLBACK, UNKNOWN = Verdict.COMMIT, Verdict.ROLLBACK, Verdict.UNKNOWN


@pytest.fixture(name="ground")
def make_ground() -> Ground:
    return Ground()


def test_commit_writes_the_final_message_and_behind_it_the_op_record(ground: Ground) -> None:
    half = ground.prepare(b"paid")
    ended = ground.end(half, COMMIT, seals=False)
    assert (ended.answer, ended.state, ended.queue_offset, ended.topic) == (
        EndResult.DONE,
        State.COMMITTED,
        0,
        "T",
    )
    assert ground.engine.unsealed
    log_end, undone = ground.engine.unsealed.seal(ground.now_ms)
    assert (log_end, undone) == (ground.store.end_offset, frozenset())
    (final,) = ground.messages("T", 1)
    (op,) = ground.messages(Topic.OP)
    assert final.log_offset < op.log_offset
    assert (final.prepared_log_offset, final.sys_flag) == (half.log_offset, SysFlag.COMMIT)
    assert op.body == b"0,"


def test_rollback_writes_the_op_record_alone(ground: Ground) -> None:
    half = ground.prepare()
    assert ground.end(half, ROLLBACK).state == State.ROLLED_BACK
    assert (ground.finals(), ground.ops()) == ([], [b"0,"])


def test_unknown_writes_nothing(ground: Ground) -> None:
    half = ground.prepare()
    before = ground.store.end_offset
    assert ground.end(half, UNKNOWN).answer == EndResult.UNKNOWN
    assert ground.store.end_offset == before
    assert half.queue_offset in ground.engine.halves.pending


def test_half_counts_are_of_what_is_pending(ground: Ground) -> None:
    halves = [ground.prepare(b"%d" % n) for n in range(3)]
    assert ground.engine.halves.meter.pending == {"T": 3}
    ground.end(halves[0], COMMIT)
    ground.end(halves[0], COMMIT)
    ground.end(halves[1], ROLLBACK)
    assert ground.engine.halves.meter.pending == {"T": 1}


def test_half_that_does_not_say_where_it_belongs_stays_pending(ground: Ground) -> None:
    put = ground.store.put(
        Message(topic=Topic.HALF, body=b"x", properties={"PGROUP": "PG"}), ground.now_ms
    )
    half = ground.store.read(put.log_offset)
    assert half is not None
    ground.engine.halves.enter(
        half.properties,
        queue_offset=0,
        log_offset=put.log_offset,
        stored_ms=ground.now_ms,
        origin="",
    )
    assert ground.end(half, COMMIT).answer == EndResult.UNREADABLE
    assert 0 in ground.engine.halves.pending
    assert ground.end(half, ROLLBACK).answer == EndResult.DONE


def test_commit_whose_final_message_cannot_be_stored_stays_pending(ground: Ground) -> None:
    half = ground.prepare(b"paid")
    ground.store.refused = frozenset({"T"})
    ended = ground.end(half, COMMIT)
    assert (ended.answer, ended.state) == (EndResult.NOT_STORED, State.PENDING)
    assert ended.put is not None
    assert ended.put.reason == "asked to fail"
    ground.store.refused = frozenset()
    assert ground.end(half, COMMIT).answer == EndResult.DONE
    assert ground.finals() == [b"paid"]


def test_half_whose_record_cannot_be_read_any_more_is_set_aside(ground: Ground) -> None:
    half = ground.prepare()
    ground.damage(half)
    assert ground.engine.halves.half(half.queue_offset) is None
    assert half.queue_offset in ground.engine.halves.pending  # a read changes nothing
    assert ground.engine.halves.half_or_set_aside(half.queue_offset) is None
    assert half.queue_offset in ground.engine.halves.quarantine
    assert half.queue_offset not in ground.engine.halves.pending
    assert ground.engine.halves.meter.pending == {"T": 0}


def test_full_disk_takes_no_half_but_every_end() -> None:
    ground = Ground(store_settings=msgspec.structs.replace(SMALL, reserve_size=1 << 16))
    halves = [ground.prepare(b"%d" % n) for n in range(5)]
    ground.disk.room = ground.disk.used
    refused = None
    for _ in range(400):
        refused = ground.engine.prepare(
            Message(topic="T", body=bytes(4_000), properties={"PGROUP": "PG"}),
            ground.now_ms,
            origin="",
        )
        if refused.log_offset < 0:
            break
    assert refused is not None
    assert refused.log_offset < 0
    assert [ground.end(half, COMMIT).answer for half in halves] == [EndResult.DONE] * 5
    ground.disk.room = None  # the queue's file is made as soon as there is room for it
    ground.store.wake(ground.now_ms)
    assert ground.finals() == [b"0", b"1", b"2", b"3", b"4"]
