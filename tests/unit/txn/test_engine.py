from __future__ import annotations

import msgspec
import pytest

from escrowmq.base.fixed_limits import HALF_PROPERTIES_SIZE_MAX
from escrowmq.base.message import Message, StoredMessage, SysFlag, Topic
from escrowmq.codec.properties import encode_properties
from escrowmq.store.store import PutStatus
from escrowmq.txn import resume
from escrowmq.txn.end_claim import EndResult
from escrowmq.txn.half_records import make_half
from escrowmq.txn.resume import TransactionResumer
from escrowmq.txn.state import State, Verdict
from tests.harness.exchange import SMALL

from .ground import HOST, Ground

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
    ground.engine.halves.add_half(
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
    assert ground.engine.halves.read_half(half.queue_offset) is None
    assert half.queue_offset in ground.engine.halves.pending  # a read changes nothing
    assert ground.engine.halves.open_half(half.queue_offset) is None
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


@pytest.mark.parametrize("verdict", [COMMIT, Verdict.EXPIRE])
@pytest.mark.parametrize("nth", [0, 2])
def test_a_transaction_that_is_ended_in_part_is_not_ended_otherwise(
    ground: Ground, verdict: Verdict, nth: int
) -> None:
    halves = [ground.prepare(b"%d" % n, escrowTransaction="tx") for n in range(3)]
    ground.store.puts_left = 1
    assert ground.decide(halves[0], verdict).answer is EndResult.NOT_STORED
    ground.store.puts_left = None
    other = ROLLBACK if verdict is COMMIT else COMMIT
    assert ground.end(halves[nth], other, count=3).answer is EndResult.CONTRADICTED
    ground.due(1_000)
    assert (ground.finals() or ground.discards()) == [b"0", b"1", b"2"]
    assert len(ground.finals()) == (3 if verdict is COMMIT else 0)


def test_a_commit_that_was_stored_in_part_is_completed_by_its_repetition(ground: Ground) -> None:
    halves = [ground.prepare(b"%d" % n, escrowTransaction="tx") for n in range(3)]
    ground.store.puts_left = 1
    assert ground.end(halves[2], COMMIT, count=3).answer is EndResult.NOT_STORED
    ground.store.puts_left = None
    assert ground.end(halves[2], COMMIT, count=3).answer is EndResult.DONE
    assert ground.finals() == [b"0", b"1", b"2"]


def test_a_half_may_have_the_largest_body_that_a_sender_may_send() -> None:
    ground = Ground(store_settings=msgspec.structs.replace(SMALL, body_size_max=100))
    ground.prepare(bytes(100))
    too_large = Message(topic="T", body=bytes(101), store_host=HOST, born_host=HOST)
    put = ground.engine.prepare(too_large, ground.now_ms, origin="")
    assert put.status is PutStatus.MESSAGE_ILLEGAL


def test_a_half_may_have_the_longest_properties_that_leave_room_for_those_of_its_end() -> None:
    ground = Ground()
    shortest = Message(topic="T", body=b"x", properties={"k": ""}, store_host=HOST, born_host=HOST)
    rest = HALF_PROPERTIES_SIZE_MAX - len(encode_properties(make_half(shortest).properties))
    for size, status in ((rest, PutStatus.OK), (rest + 1, PutStatus.PROPERTIES_SIZE_EXCEEDED)):
        message = msgspec.structs.replace(shortest, properties={"k": "x" * size})
        assert ground.engine.prepare(message, ground.now_ms, origin="").status is status


def discarded(ground: Ground, *bodies: bytes, transaction: str) -> list[StoredMessage]:
    """Halves of one transaction, given up; and their messages as they are kept."""
    before = len(ground.messages(Topic.CHECK_MAX_TIME))
    halves = [ground.prepare(body, escrowTransaction=transaction) for body in bodies]
    half = ground.engine.halves.open_half(halves[0].queue_offset)
    assert half is not None
    ground.engine.carry_out_verdict(half, Verdict.EXPIRE, now_ms=ground.now_ms)
    ground.engine.unsealed.seal(ground.now_ms)
    return [*halves, *ground.messages(Topic.CHECK_MAX_TIME)[before:]]


def pending_bodies(ground: Ground) -> list[bytes]:
    halves = map(ground.engine.halves.read_half, ground.engine.halves.pending)
    return [half.body for half in halves if half is not None]


@pytest.mark.parametrize("nth", range(4))
def test_all_messages_of_a_discarded_transaction_are_resumed_and_no_other(
    ground: Ground, nth: int
) -> None:
    discarded(ground, b"before", transaction="a")
    sources = discarded(ground, b"1", b"2", transaction="b")
    discarded(ground, b"after", transaction="c")
    assert (
        TransactionResumer(ground.engine, ground.store).resume(sources[nth], ground.now_ms).count
        == 2
    )
    assert pending_bodies(ground) == [b"1", b"2"], "in their order, whichever of them is named"


def test_a_half_that_lies_far_from_its_discarded_messages_finds_them(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resume, "_NEIGHBOURS_COUNT", 2)
    for number in range(9):
        ground.end(ground.prepare(b"x%d" % number), ROLLBACK)
    half = discarded(ground, b"1", b"2", transaction="b")[0]
    assert TransactionResumer(ground.engine, ground.store).resume(half, ground.now_ms).count == 2
    assert pending_bodies(ground) == [b"1", b"2"]


def test_messages_of_a_transaction_that_was_given_up_twice_are_resumed_in_their_order(
    ground: Ground,
) -> None:
    resumer = TransactionResumer(ground.engine, ground.store)
    first = discarded(ground, b"1", b"2", b"3", transaction="a")[-1]
    resumer.resume(first, ground.now_ms)
    half = ground.engine.halves.open_half(min(ground.engine.halves.pending))
    assert half is not None
    ground.engine.carry_out_verdict(half, Verdict.EXPIRE, now_ms=ground.now_ms)
    ground.engine.unsealed.seal(ground.now_ms)
    newest = ground.messages(Topic.CHECK_MAX_TIME)[4]
    assert resumer.resume(newest, ground.now_ms).count == 3
    assert pending_bodies(ground) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("is_half", [True, False])
def test_a_transaction_of_which_a_message_is_lost_is_not_resumed(
    ground: Ground, *, is_half: bool
) -> None:
    half, _, kept, lost = discarded(ground, b"1", b"2", transaction="a")
    ground.damage(lost)
    source = half if is_half else kept
    resumed = TransactionResumer(ground.engine, ground.store).resume(source, ground.now_ms)
    assert "of the 2 messages of transaction a only 1 are kept" in resumed.refusal
    assert pending_bodies(ground) == []


@pytest.mark.parametrize(("bodies", "count"), [((b"1",), 1), ((b"1", b"2"), 0)])
def test_room_for_all_is_asked_for_when_several_messages_are_resumed(
    ground: Ground, bodies: tuple[bytes, ...], count: int
) -> None:
    source = discarded(ground, *bodies, transaction="a")[-1]
    ground.store.has_room_left = False
    resumed = TransactionResumer(ground.engine, ground.store).resume(source, ground.now_ms)
    assert (resumed.count, len(pending_bodies(ground))) == (count, count)


def test_a_half_whose_discarded_message_is_lost_is_resumed_by_itself(ground: Ground) -> None:
    half, lost = discarded(ground, b"1", transaction="a")
    ground.damage(lost)
    assert TransactionResumer(ground.engine, ground.store).resume(half, ground.now_ms).count == 1


def test_a_message_that_cannot_be_stored_is_not_counted_as_resumed(ground: Ground) -> None:
    (_, source) = discarded(ground, b"1", transaction="a")
    ground.store.refused = frozenset({Topic.HALF})
    resumed = TransactionResumer(ground.engine, ground.store).resume(source, ground.now_ms)
    assert resumed.count == 0
    assert resumed.put is not None
    assert resumed.put.status is PutStatus.SERVICE_NOT_AVAILABLE


def test_a_half_is_in_a_state_of_its_own_whatever_became_of_another_with_its_key(
    ground: Ground,
) -> None:
    """A producer that got no answer sends its half again."""
    first, second = ground.prepare(b"1"), ground.prepare(b"1")
    ground.end(first, COMMIT)
    resumption = TransactionResumer(ground.engine, ground.store)
    assert resumption.state_of(first) == State.COMMITTED
    assert resumption.state_of(second) == State.PENDING


@pytest.mark.parametrize("other", ["A", "Z"])
def test_a_discarded_message_can_be_resumed_whatever_half_of_another_group_has_its_key(
    ground: Ground, other: str
) -> None:
    *_, kept = discarded(ground, b"1", transaction="a")
    ground.prepare(b"1", group=other)
    assert TransactionResumer(ground.engine, ground.store).state_of(kept) == State.EXPIRED


def test_a_half_whose_op_record_is_not_kept_any_more_counts_as_settled(ground: Ground) -> None:
    half = ground.prepare()
    ground.reopen(half_offset=1)
    assert TransactionResumer(ground.engine, ground.store).state_of(half) == State.SETTLED
