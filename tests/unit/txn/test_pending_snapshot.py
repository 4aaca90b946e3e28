from __future__ import annotations

import random
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.txn.half_queue_progress import Progress
from escrowmq.txn.pending_snapshot import PendingSnapshot, decode, encode
from escrowmq.txn.state import Verdict
from tests.harness.examples import seeds

from .ground import Ground

OFFSET = st.integers(0, (1 << 62) - 1)


@given(OFFSET, OFFSET, st.lists(OFFSET, max_size=20))
def test_snapshot_is_the_same_after_its_file(half: int, op: int, pending: list[int]) -> None:
    assert decode(encode(half, op, pending)) == PendingSnapshot(half, op, array("q", pending))


@given(st.data())
def test_file_that_is_not_whole_is_none(data: st.DataObject) -> None:
    whole = encode(9, 3, [1, 2])
    assert decode(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None
    at = data.draw(st.integers(0, len(whole) - 1))
    assert decode(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]) is None
    assert decode(None) is None
    assert decode(data.draw(st.binary(max_size=50))) is None


def snapshot_of(ground: Ground) -> PendingSnapshot:
    half_end = ground.store.bounds("RMQ_SYS_TRANS_HALF_TOPIC", 0)[1]
    op_end = ground.store.bounds("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0)[1]
    return PendingSnapshot(half_end, op_end, array("q", ground.engine.halves.pending.after(-1)))


@pytest.mark.parametrize("seed", seeds(30))
def test_start_with_a_snapshot_finds_what_one_without_finds(seed: int) -> None:
    chance = random.Random(seed)
    ground = Ground()
    halves = [ground.prepare(b"%d" % n) for n in range(40)]

    def end_some(count: int) -> None:
        for half in chance.sample(halves, count):
            if half.queue_offset in ground.engine.halves.pending:
                verdict = chance.choice([Verdict.COMMIT, Verdict.ROLLBACK])
                ground.end(half, verdict, seals=chance.random() < 0.7)
        ground.engine.unsealed.seal(ground.now_ms)

    end_some(25)
    taken = snapshot_of(ground)
    halves += [ground.prepare(b"later %d" % n) for n in range(10)]
    end_some(20)
    if chance.random() < 0.5:  # killed between a final and its op record
        for half in halves:
            if half.queue_offset in ground.engine.halves.pending:
                ground.end(half, Verdict.COMMIT, seals=False)
                break
    ground.reopen()
    without = {at: ground.engine.halves.pending.row(at) for at in ground.engine.halves.pending}
    ground.reopen(snapshot=taken)
    assert {
        at: ground.engine.halves.pending.row(at) for at in ground.engine.halves.pending
    } == without
    assert ground.engine.progress.op_offset(0) == 0


@pytest.mark.parametrize(
    "foreign",
    [
        PendingSnapshot(999, 1, array("q")),
        PendingSnapshot(3, 999, array("q")),
        PendingSnapshot(0, 0, array("q")),
    ],
)
def test_snapshot_of_another_store_is_not_used(foreign: PendingSnapshot) -> None:
    ground = Ground()
    halves = [ground.prepare(b"%d" % n) for n in range(3)]
    ground.end(halves[1], Verdict.COMMIT)
    ground.reopen(snapshot=foreign)
    assert sorted(ground.engine.halves.pending) == [0, 2]


def test_progress_of_many_op_records_is_bounded_and_never_too_far() -> None:
    progress = Progress()
    progress.start(0)
    for op in range(100_000):
        progress.note(op, [op + 5])
    assert len(progress._ops) <= 65_536
    for half in (0, 5, 6, 1_000, 75_000, 100_005):
        exact = max(0, min(half - 5, 100_000))
        assert exact - 16 <= progress.op_offset(half) <= exact
