from __future__ import annotations

import msgspec
import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.message import Message, SysFlag, Topic
from escrowmq.txn.carry_forward import Carrier
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


@pytest.mark.parametrize("first", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("second", [COMMIT, ROLLBACK, UNKNOWN])
@pytest.mark.parametrize("seals", [True, False])
def test_first_end_wins(ground: Ground, first: Verdict, second: Verdict, seals: bool) -> None:
    half = ground.prepare(b"paid")
    state = ground.end(half, first, seals=seals).state
    later = ground.end(half, second)
    assert later.state == state
    is_same = second in (first, UNKNOWN)
    assert later.answer == (EndResult.REPEATED if is_same else EndResult.CONTRADICTED)
    assert ground.finals() == ([b"paid"] if first == COMMIT else [])
    assert ground.ops() == [b"0,"]
    counters = ground.engine.halves.counters
    assert (counters.repeated, counters.contradicted) == (int(is_same), int(not is_same))


def test_half_counts_are_of_what_is_pending(ground: Ground) -> None:
    halves = [ground.prepare(b"%d" % n) for n in range(3)]
    assert ground.engine.halves.meter.pending == {"T": 3}
    ground.end(halves[0], COMMIT)
    ground.end(halves[0], COMMIT)
    ground.end(halves[1], ROLLBACK)
    assert ground.engine.halves.meter.pending == {"T": 1}


def test_refusals_change_nothing(ground: Ground) -> None:
    half = ground.prepare()
    plain = ground.store.put(
        Message(topic="T", body=b"x", properties={"PGROUP": "PG"}), ground.now_ms
    )
    cases = [
        (ground.end(half, COMMIT, log_offset=half.log_offset + 1), EndResult.NOT_FOUND),
        (ground.end(half, COMMIT, log_offset=-1), EndResult.NOT_FOUND),
        (
            ground.end(half, COMMIT, log_offset=plain.log_offset, queue_offset=0),
            EndResult.NOT_FOUND,
        ),
        (ground.end(half, COMMIT, queue_offset=1), EndResult.QUEUE_OFFSET_WRONG),
    ]
    assert [ended.answer for ended, _ in cases] == [answer for _, answer in cases]
    forged = msgspec.structs.replace(half, properties={"PGROUP": "Forged"})
    assert ground.end(forged, COMMIT).answer == EndResult.GROUP_WRONG
    assert ground.finals() == []
    assert ground.end(half, COMMIT).answer == EndResult.DONE


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


@pytest.mark.parametrize(
    ("wish", "age_ms", "answer"),
    [
        ("10", 10_000, EndResult.DONE),
        ("10", 10_001, EndResult.TOO_LATE),
        ("1", 6_000, EndResult.DONE),
        ("1", 6_001, EndResult.TOO_LATE),
        ("x", 6_001, EndResult.TOO_LATE),
        (None, 10**9, EndResult.DONE),
    ],
)
def test_own_end_comes_too_late_after_the_immunity_or_the_time_out(
    ground: Ground, wish: str | None, age_ms: int, answer: EndResult
) -> None:
    properties = {} if wish is None else {"CHECK_IMMUNITY_TIME_IN_SECONDS": wish}
    half = ground.prepare(b"body", group="PG", origin="", **properties)
    ground.now_ms += age_ms
    assert ground.end(half, COMMIT).answer == answer


def test_clock_of_the_producer_decides_nothing() -> None:
    ground = Ground(BrokerSettings())
    half = ground.prepare(CHECK_IMMUNITY_TIME_IN_SECONDS="10")
    assert half.stored_ms == ground.now_ms
    skewed = msgspec.structs.replace(half, born_ms=half.born_ms - 86_400_000)
    assert ground.end(skewed, COMMIT).answer == EndResult.DONE


def test_half_whose_record_cannot_be_read_any_more_is_set_aside(ground: Ground) -> None:
    half = ground.prepare()
    ground.damage(half)
    assert ground.engine.half(half.queue_offset) is None
    assert half.queue_offset in ground.engine.halves.pending  # a read changes nothing
    assert ground.engine.half_or_set_aside(half.queue_offset) is None
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


def test_an_end_by_the_first_place_finds_the_copy_that_waits_for_the_disk() -> None:
    """The copy of a half that was carried forward has no unit before it is durable: the end of
    whoever knows the first place alone was told to be repeated, and nothing was committed."""
    ground = Ground(store_settings=msgspec.structs.replace(SMALL, is_sync_flush=True))
    half = ground.prepare(b"x")
    ground.sync()
    Carrier(ground.engine, ground.checker, ground.store).carry(1 << 40, ground.now_ms)
    ground.engine.unsealed.seal(ground.now_ms)
    assert ground.end(half, COMMIT).answer is EndResult.DONE
    assert not len(ground.engine.halves.pending)
    repeated = ground.end(half, COMMIT)
    assert (repeated.answer, repeated.state) == (EndResult.REPEATED, State.COMMITTED)
