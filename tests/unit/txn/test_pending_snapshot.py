from __future__ import annotations

import random
import zlib
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.txn import half_queue_progress
from escrowmq.txn.engine import TransactionEngine
from escrowmq.txn.half_queue_progress import HalfQueueProgress
from escrowmq.txn.pending_recovery import HalvesRecovery
from escrowmq.txn.pending_snapshot import PendingSnapshot, decode, encode
from escrowmq.txn.state import Verdict
from tests.harness.examples import seeds

from .ground import HOST, Ground

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


def test_file_with_a_part_of_a_number_is_none_although_its_checksum_is_right() -> None:
    whole = encode(9, 3, [1, 2])
    mark, body = whole[:4], whole[8:] + b"\0\0\0"
    assert decode(mark + zlib.crc32(body).to_bytes(4, "big") + body) is None


def snapshot_of(ground: Ground) -> PendingSnapshot:
    half_end = ground.store.bounds("RMQ_SYS_TRANS_HALF_TOPIC", 0)[1]
    op_end = ground.store.bounds("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0)[1]
    return PendingSnapshot(
        half_end, op_end, array("q", ground.engine.halves.pending.offsets_after(-1))
    )


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
    assert ground.engine.progress.first_needed_op(0) == 0


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


@pytest.mark.parametrize(("is_sound", "pending"), [(True, [1]), (False, [0, 1])])
def test_snapshot_is_used_if_the_store_is_sound(*, is_sound: bool, pending: list[int]) -> None:
    ground = Ground()
    halves = [ground.prepare(b"%d" % n) for n in range(3)]
    ground.end(halves[2], Verdict.COMMIT)
    engine = TransactionEngine(
        ground.store, ground.settings, host=HOST, as_delivered=lambda final, now_ms: final
    )
    found = HalvesRecovery(engine, ground.store).read_only(
        ground.now_ms, half_offset=0, op_offset=0, is_sound=is_sound,
        snapshot=PendingSnapshot(3, 1, array("q", [1])),
    )  # fmt: skip
    assert list(engine.halves.pending) == pending
    assert found.ops_count == (not is_sound), "the snapshot covers the only op record"


def test_progress_of_many_op_records_is_bounded_and_never_too_far(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(half_queue_progress, "_OPS_WATCHED_MAX", 64)
    progress, counts = HalfQueueProgress(), []
    progress.start_at(0)
    for op in range(160):
        progress.add_op_record(op, [op + 5])
        counts.append(len(progress._ops))
    assert max(counts) == 64
    for half in (0, 5, 6, 50, 120, 165):
        exact = max(0, min(half - 5, 160))
        assert exact - 16 <= progress.first_needed_op(half) <= exact


@pytest.mark.parametrize("count", [64, 65, 66])
def test_progress_passes_all_op_records_once_all_their_halves_are_done_with(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(half_queue_progress, "_OPS_WATCHED_MAX", 64)
    progress = HalfQueueProgress()
    for op in range(count):
        progress.add_op_record(op, [op])
    assert progress.first_needed_op(count - 1) < count
    assert progress.first_needed_op(count) == count
