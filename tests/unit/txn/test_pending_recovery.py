from __future__ import annotations

import random

import msgspec
import pytest

from escrowmq.base.message import Message, StoredMessage, Topic
from escrowmq.codec.properties import encode_properties
from escrowmq.store.store import Store
from escrowmq.testing.disk import CrashLoss, SimCrash, SimDisk
from escrowmq.txn.doubled_halves import has_final
from escrowmq.txn.end_claim import EndResult
from escrowmq.txn.engine import TransactionEngine
from escrowmq.txn.half_queue_progress import HalfQueueProgress
from escrowmq.txn.half_records import copy_to, make_final
from escrowmq.txn.pending_recovery import HalvesRecovery
from escrowmq.txn.state import State, Verdict
from tests.harness.examples import seeds
from tests.harness.exchange import COMMIT, ROLLBACK, SMALL, Exchange, half_of_check

from .ground import HOST, Ground


@pytest.fixture(name="ground")
def make_ground() -> Ground:
    return Ground()


def java_op(ground: Ground, body: bytes) -> None:
    """An op record as RocketMQ writes it."""
    message = Message(topic=Topic.OP, body=body, properties={"WAIT": "true", "TAGS": "d"})
    ground.store.put(message, ground.now_ms)


def java_final(ground: Ground, half: StoredMessage) -> None:
    final = make_final(half)
    assert final is not None
    ground.store.put(final, ground.now_ms)


def put_back(ground: Ground, half: StoredMessage, checks: int) -> StoredMessage:
    """The copy that RocketMQ's check stores, with the number of the check."""
    copy = copy_to(half, Topic.HALF, TRANSACTION_CHECK_TIMES=str(checks))
    put = ground.store.put(msgspec.structs.replace(copy, flag=0), ground.now_ms)
    found = ground.store.read(put.log_offset)
    assert found is not None
    return found


# -- our own stores ------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [2, 3, 4])
def test_finals_before_the_first_of_several_op_records_are_found(ground: Ground, kept: int) -> None:
    """Ends of a producer and of an administrator in one input have op records of their own."""
    first, second = ground.prepare(b"1"), ground.prepare(b"2")
    ground.store.puts_left = kept
    for half, who in ((first, ""), (second, "admin")):
        ground.decide(half, Verdict.COMMIT, who=who)
    ground.engine.unsealed.seal(ground.now_ms)
    ground.store.puts_left = None
    ground.reopen()
    assert len(ground.engine.halves.pending) == 0
    assert ground.finals() == [b"1", b"2"]


def test_pending_ended_and_given_up_are_what_they_were(ground: Ground) -> None:
    halves = [ground.prepare(b"%d" % n) for n in range(4)]
    ground.end(halves[0], Verdict.COMMIT)
    ground.end(halves[1], Verdict.ROLLBACK)
    ground.decide(halves[2], Verdict.EXPIRE)
    ground.engine.unsealed.seal(ground.now_ms)
    found = ground.reopen()
    assert (found.pending_count, found.ops_count, found.derived_count) == (1, 3, 0)
    assert list(ground.engine.halves.pending) == [3]
    assert [ground.engine.halves.ledger.outcome(n) for n in range(4)] == [
        State.COMMITTED,
        State.ROLLED_BACK,
        State.EXPIRED,
        None,
    ]
    assert ground.engine.halves.meter.pending == {"T": 1}
    assert ground.end(halves[3], Verdict.COMMIT).answer == EndResult.DONE


def test_many_halves_of_some_kinds_are_what_they_were(ground: Ground) -> None:
    """Those that are alike are read together, by compiled code where there is any."""
    halves = [
        ground.prepare(
            b"%04d" % n,
            group=("PG", "P2")[n % 7 == 3],
            **({"CHECK_IMMUNITY_TIME_IN_SECONDS": str(n % 11)} if n % 5 == 1 else {}),
            **({"TRANSACTION_CHECK_TIMES": "2"} if n % 50 == 49 else {}),
        )
        for n in range(300)
    ]
    for half in halves[3::4]:
        ground.end(half, Verdict.COMMIT)
    pending = ground.engine.halves.pending
    before = {number: pending.row(number) for number in pending}
    segment = next(path for path in ground.disk.files if path.startswith("commitlog/"))
    ground.disk.flip_bit(segment, halves[128].log_offset + 90)
    ground.reopen()
    pending = ground.engine.halves.pending
    after = {number: pending.row(number) for number in pending}
    assert before.pop(128).log_offset == halves[128].log_offset
    assert list(after) == list(before)
    for number, row in after.items():
        was = before[number]
        assert (row.log_offset, row.stored_ms, row.due_ms) == (
            was.log_offset, was.stored_ms, was.due_ms
        )  # fmt: skip
        assert (row.group, row.topic) == (was.group, was.topic)
    assert ground.engine.halves.meter.pending == {"T": 224}


def test_outcomes_are_remembered_in_front_of_the_progress(ground: Ground) -> None:
    halves = [ground.prepare(b"%d" % n) for n in range(3)]
    ground.end(halves[0], Verdict.COMMIT)
    ground.end(halves[1], Verdict.ROLLBACK)
    ground.reopen(half_offset=2, op_offset=2)
    assert ground.end(halves[0], Verdict.ROLLBACK).answer == EndResult.CONTRADICTED
    assert ground.end(halves[1], Verdict.ROLLBACK).answer == EndResult.REPEATED
    assert list(ground.engine.halves.pending) == [2]


def test_progress_beyond_the_queues_or_negative_does_no_harm(ground: Ground) -> None:
    ground.prepare()
    assert ground.reopen(half_offset=-1, op_offset=-1).pending_count == 1
    assert ground.reopen(half_offset=99, op_offset=99).pending_count == 0


def test_pending_half_has_its_time_from_when_it_was_stored(ground: Ground) -> None:
    half = ground.prepare()
    ground.now_ms += 4_000
    ground.reopen()
    row = ground.engine.halves.pending.row(half.queue_offset)
    assert (row.stored_ms, row.group, row.topic) == (half.stored_ms, "PG", "T")
    assert ground.checker.wake_at_ms() <= half.stored_ms + 6_100


def test_final_without_an_op_record_is_not_written_again(ground: Ground) -> None:
    halves = [ground.prepare(b"%d" % n) for n in range(3)]
    ground.end(halves[0], Verdict.COMMIT)
    ground.end(halves[1], Verdict.COMMIT, seals=False)  # killed before the op record
    found = ground.reopen()
    assert (found.derived_count, found.pending_count) == (1, 1)
    assert ground.ops() == [b"0,", b"1,"]
    assert ground.end(halves[1], Verdict.COMMIT).answer == EndResult.REPEATED
    assert ground.finals() == [b"0", b"1"]


def test_rollback_without_an_op_record_is_pending_again(ground: Ground) -> None:
    half = ground.prepare()
    ground.end(half, Verdict.ROLLBACK, seals=False)
    assert ground.reopen().pending_count == 1
    assert ground.end(half, Verdict.ROLLBACK).answer == EndResult.DONE


@pytest.mark.parametrize("at", [4, 86, 88])
def test_damaged_half_is_set_aside_and_the_others_are_found(ground: Ground, at: int) -> None:
    halves = [ground.prepare(b"%d" % n) for n in range(5)]
    segment = next(path for path in ground.disk.files if path.startswith("commitlog/"))
    ground.disk.flip_bit(segment, halves[2].log_offset + at)
    ground.reopen()
    assert ground.end(halves[2], Verdict.COMMIT).answer == EndResult.NOT_FOUND
    for number in (0, 1, 3, 4):
        assert ground.end(halves[number], Verdict.COMMIT).answer == EndResult.DONE
    assert ground.finals() == [b"0", b"1", b"3", b"4"]


def test_gaps_in_the_queue_cost_no_reads(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit of no message names 2 GB from the log's beginning on: a read of a whole segment."""
    first = ground.prepare(b"1")
    queue = ground.store.queues.by_key[Topic.HALF, 0]
    queue.fill_gap(4)
    queue.reset_next_offset()
    last = ground.prepare(b"2")
    sizes: list[int] = []
    log = ground.store.log
    read = log.read

    def counted(log_offset: int, size: int) -> bytes:
        sizes.append(size)
        return read(log_offset, size)

    monkeypatch.setattr(log, "read", counted)
    engine = TransactionEngine(
        ground.store, ground.settings, host=HOST, as_delivered=lambda final, _: final
    )
    recovery = HalvesRecovery(engine, ground.store)
    recovery.run(ground.now_ms, half_offset=0, op_offset=0, is_sound=True)
    assert list(engine.halves.pending) == [0, 4]
    assert set(engine.halves.quarantine) == {1, 2, 3}
    assert max(sizes) <= first.record_size + last.record_size


@pytest.mark.parametrize("seed", seeds(40))
def test_crash_at_any_step_leaves_one_final_of_each_commit(seed: int) -> None:
    """A script of prepares and ends on a SYNC_FLUSH broker is stopped at a random operation."""
    chance = random.Random(seed)
    settings = msgspec.structs.replace(SMALL, is_sync_flush=True, log_segment_size=1 << 15)
    exchange = Exchange(store_settings=settings, disk=SimDisk())
    producer = exchange.connect()
    halves = [producer.prepare("T", b"%d" % n * 50) for n in range(20)]
    verdicts = {half: chance.choice((COMMIT, ROLLBACK)) for half in halves}
    told: dict[object, bool] = {}
    exchange.disk.stop_at = exchange.disk.steps_count + chance.randrange(1, 120)
    try:
        for half in halves:
            reply = producer.end(half, verdicts[half])
            told[half] = reply.code == 0
    except SimCrash:
        pass
    exchange.crash(chance.choice(list(CrashLoss)), seed=seed)
    producer = exchange.connect()
    before = producer.bodies("T")
    for half in halves:
        if told.get(half) and verdicts[half] == COMMIT:
            body = b"%d" % half.queue_offset * 50
            assert before.count(body) == 1
    for half in halves:
        assert producer.end(half, verdicts[half]).code == 0
    wanted = sorted(b"%d" % h.queue_offset * 50 for h in halves if verdicts[h] == COMMIT)
    assert sorted(producer.bodies("T")) == wanted


# -- stores of RocketMQ --------------------------------------------------------------------------


@pytest.mark.parametrize("bodies", [[b"0,1,"], [b"0", b"1"], [b"0,", b"1,1,"], [b"1", b"0,0,"]])
def test_op_records_of_both_forms_are_understood(ground: Ground, bodies: list[bytes]) -> None:
    halves = [ground.prepare(b"%d" % n) for n in range(3)]
    java_final(ground, halves[0])
    for body in bodies:
        java_op(ground, body)
    found = ground.reopen()
    assert (found.pending_count, found.derived_count) == (1, 0)
    assert ground.engine.halves.ledger.outcome(0) == State.SETTLED
    ended = ground.end(halves[1], Verdict.COMMIT)
    assert (ended.answer, ended.state) == (EndResult.REPEATED, State.SETTLED)
    assert ground.finals() == [b"0"]


def test_commit_whose_op_record_was_lost_with_the_peers_memory_is_found_in_the_log(
    ground: Ground,
) -> None:
    halves = [ground.prepare(b"%d" % n) for n in range(3)]
    java_op(ground, b"0,")
    java_final(ground, halves[2])
    found = ground.reopen()
    assert (found.pending_count, found.derived_count) == (1, 1)
    assert list(ground.engine.halves.pending) == [1]
    assert ground.end(halves[2], Verdict.COMMIT).answer == EndResult.REPEATED


def test_newest_copy_counts_and_both_copies_can_be_ended(ground: Ground) -> None:
    first = ground.prepare(b"paid")
    copy = put_back(ground, first, 3)
    java_op(ground, b"0,")  # the copy has taken its place
    found = ground.reopen()
    assert found.pending_count == 1
    assert ground.engine.halves.pending.checks_count(copy.queue_offset) == 3
    assert ground.end(first, Verdict.COMMIT).answer == EndResult.DONE
    assert ground.end(copy, Verdict.COMMIT).answer == EndResult.REPEATED
    assert ground.finals() == [b"paid"]


def test_final_of_the_first_copy_ends_the_newest(ground: Ground) -> None:
    """END named the first copy after RocketMQ had put the half back: its op record is void."""
    first = ground.prepare(b"paid")
    copy = put_back(ground, first, 1)
    java_final(ground, first)
    found = ground.reopen(half_offset=copy.queue_offset)
    assert (found.pending_count, found.derived_count) == (0, 1)
    assert ground.end(copy, Verdict.COMMIT).answer == EndResult.REPEATED
    assert ground.finals() == [b"paid"]


def test_immunity_copy_is_the_half_that_counts(ground: Ground) -> None:
    first = ground.prepare(b"paid", CHECK_IMMUNITY_TIME_IN_SECONDS="600")
    properties = {**first.properties, "TRAN_PREPARED_QUEUE_OFFSET": "0"}
    copy = msgspec.structs.replace(copy_to(first, Topic.HALF), properties=properties)
    ground.store.put(copy, ground.now_ms)
    java_op(ground, b"0,")
    ground.reopen()
    assert list(ground.engine.halves.pending) == [1]
    assert ground.end(first, Verdict.COMMIT).answer == EndResult.DONE
    assert ground.finals() == [b"paid"]


# -- what others wrote ---------------------------------------------------------------------------


def forge(ground: Ground, half: StoredMessage, topic: str, **said: str) -> None:
    """A message that a client of an older release marked as the commit of a half."""
    place = {"REAL_TOPIC": "T", "REAL_QID": "1", "PGROUP": "PG"}
    message = Message(
        topic=topic,
        body=b"forged",
        properties={"UNIQ_KEY": half.properties["UNIQ_KEY"], **place, **said},
        sys_flag=8,
        prepared_log_offset=half.log_offset if topic == "T" else 0,
    )
    ground.store.put(message, ground.now_ms)


@pytest.mark.parametrize("checks", [{}, {"TRANSACTION_CHECK_TIMES": "1"}])
@pytest.mark.parametrize("is_first", [True, False])
def test_message_to_another_topic_is_not_the_end_of_a_half(
    ground: Ground, is_first: bool, checks: dict[str, str]
) -> None:
    if not is_first:
        ground.store.put(Message(topic="Other", body=b"x"), ground.now_ms)
    half = ground.prepare(b"theirs", **checks)
    assert (half.log_offset == 0) is is_first
    forge(ground, half, "Other")
    forge(ground, half, "Other", REAL_TOPIC="Other")
    forge(ground, half, "%RETRY%CG", REAL_TOPIC="%RETRY%CG")
    forge(ground, half, Topic.SCHEDULE, REAL_TOPIC="Other", DELAY="1")
    forge(ground, half, "T", PGROUP="another")
    found = ground.reopen()
    assert (found.pending_count, found.derived_count) == (1, 0)
    assert ground.end(half, Verdict.COMMIT).answer == EndResult.DONE
    assert ground.messages("T", 1)[-1].body == b"theirs"


def test_no_final_is_found_for_a_half_by_a_message_of_another_topic(ground: Ground) -> None:
    half = ground.prepare(b"theirs")
    forge(ground, half, "T", PGROUP="another")
    assert not has_final(half, ground.store)
    forge(ground, half, "T")
    assert has_final(half, ground.store)


@pytest.mark.parametrize("said", [{"group": "another"}, {"PGROUP": "PG", "topic": "Other"}])
def test_half_of_another_group_or_topic_is_no_newer_copy(
    ground: Ground, said: dict[str, str]
) -> None:
    half = ground.prepare(b"theirs")
    properties = {
        **half.properties,
        "PGROUP": said.get("group", "PG"),
        "REAL_TOPIC": said.get("topic", "T"),
        "TRANSACTION_CHECK_TIMES": "1",
        "escrowCarried": f"{half.queue_offset}:{half.log_offset}:1",
    }
    ground.store.put(Message(topic=Topic.HALF, body=b"x", properties=properties), ground.now_ms)
    ground.reopen()
    assert list(ground.engine.halves.pending) == [0, 1]
    assert not ground.engine.halves.carried
    assert ground.end(half, Verdict.COMMIT).answer == EndResult.DONE
    assert ground.finals() == [b"theirs"]
    assert list(ground.engine.halves.pending) == [1]
    assert ground.end(half, Verdict.ROLLBACK).answer == EndResult.CONTRADICTED


def test_transaction_of_the_peer_is_checked_and_ended_by_us() -> None:
    exchange = Exchange()
    producer = exchange.connect()
    half = producer.prepare("T", b"paid")
    exchange.core.broker.store.put(
        Message(topic=Topic.OP, body=b"17,", properties={"WAIT": "true", "TAGS": "d"}),
        exchange.now_ms,
        properties=encode_properties({"WAIT": "true", "TAGS": "d"}),
    )
    exchange.reopen()
    producer = exchange.connect()
    producer.heartbeat(producer="PG")
    exchange.advance(6_100)
    (check,) = producer.take(39)
    assert half_of_check(check).queue_offset == half.queue_offset
    producer.end(half_of_check(check), COMMIT, is_from_check=True)
    assert producer.bodies("T") == [b"paid"]


# -- progress ------------------------------------------------------------------------------------


def test_op_progress_follows_that_of_the_halves() -> None:
    progress = HalfQueueProgress()
    progress.start_at(3)
    assert progress.first_needed_op(100) == 3
    progress.add_op_record(3, [0, 2])
    progress.add_op_record(4, [1])
    progress.add_op_record(5, [7])
    assert progress.first_needed_op(2) == 3
    assert progress.first_needed_op(3) == 5
    assert progress.first_needed_op(8) == 6
    progress.add_op_record(6, [])
    assert progress.first_needed_op(8) == 7


def test_progress_of_both_queues_is_in_the_consumer_offsets() -> None:
    exchange = Exchange()
    producer = exchange.connect()
    halves = [producer.prepare("T", b"%d" % n) for n in range(3)]
    producer.end(halves[0], COMMIT)
    producer.end(halves[2], ROLLBACK)
    exchange.advance(30_000)

    def progress() -> tuple[int, int]:
        offsets = exchange.core.broker.offsets
        group = "CID_RMQ_SYS_TRANS"
        return offsets.get(group, Topic.HALF, 0), offsets.get(group, Topic.OP, 0)

    assert progress() == (1, 1)
    producer.end(halves[1], COMMIT)
    exchange.advance(30_000)
    assert progress() == (3, 3)
    exchange.reopen()
    assert progress() == (3, 3)
    producer = exchange.connect()
    half = producer.prepare("T", b"new")
    assert producer.end(half, COMMIT).code == 0
    assert producer.bodies("T") == [b"0", b"1", b"new"]


# -- what was given up ---------------------------------------------------------------------------


def give_up(ground: Ground, half: StoredMessage) -> None:
    """Its copy is kept, and its op record has no room."""
    ground.store.refused = frozenset({Topic.OP})
    ground.decide(half, Verdict.EXPIRE)
    ground.engine.unsealed.seal(ground.now_ms)
    ground.store.refused = frozenset()


@pytest.mark.parametrize("ends_before", [False, True])
def test_half_that_no_op_record_says_was_given_up_is_not_given_up_again(
    ground: Ground, ends_before: bool
) -> None:
    half, other, last = (ground.prepare(body) for body in (b"given up", b"other", b"last"))
    if ends_before:
        ground.end(other, Verdict.COMMIT)
    give_up(ground, half)
    assert ground.reopen().derived_count == 1
    assert half.queue_offset not in ground.engine.halves.pending
    assert last.queue_offset in ground.engine.halves.pending
    assert ground.engine.halves.ledger.outcome(half.queue_offset) == State.EXPIRED
    assert ground.discards() == [b"given up"]
    assert ground.reopen().derived_count == 0  # an op record says so by now


def test_discards_whose_units_are_gone_keep_no_broker_from_starting(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = ground.prepare(b"given up")
    give_up(ground, half)
    entries = Store.read_units
    monkeypatch.setattr(
        Store,
        "read_units",
        lambda *place: [] if Topic.CHECK_MAX_TIME in place else entries(*place),
    )
    assert ground.reopen().pending_count == 1


def test_half_that_was_resumed_is_not_ended_by_its_older_discard(ground: Ground) -> None:
    half = ground.prepare(b"again")
    give_up(ground, half)
    discard = ground.messages(Topic.CHECK_MAX_TIME)[0]
    resumed = ground.engine.resume_half(discard, ground.now_ms)
    assert ground.reopen().derived_count == 1
    assert list(ground.engine.halves.pending) == [resumed.queue_offset]
    again = ground.store.read(resumed.log_offset)
    assert again is not None
    give_up(ground, again)
    assert ground.reopen().derived_count == 1
    assert len(ground.engine.halves.pending) == 0
    assert ground.discards() == [b"again", b"again"]


def test_transaction_that_was_given_up_in_part_is_given_up_whole(ground: Ground) -> None:
    halves = [ground.prepare(b"m%d" % n, escrowTransaction="tx") for n in range(3)]
    ground.store.puts_left = 2
    ground.decide(halves[0], Verdict.EXPIRE)
    ground.store.puts_left = None
    ground.reopen()
    assert len(ground.engine.halves.pending) == 0
    assert ground.discards() == [b"m0", b"m1", b"m2"]
    states = [ground.engine.halves.ledger.outcome(half.queue_offset) for half in halves]
    assert states == [State.EXPIRED] * 3


def test_copy_that_the_peer_gave_up_is_ended_and_one_that_it_resumed_is_not(
    ground: Ground,
) -> None:
    copy = put_back(ground, ground.prepare(b"java"), 15)
    ground.store.put(copy_to(copy, Topic.CHECK_MAX_TIME), ground.now_ms)
    java_op(ground, b"0,")
    ground.reopen()
    assert len(ground.engine.halves.pending) == 0
    resumed = put_back(ground, copy, 0)
    ground.reopen()
    assert list(ground.engine.halves.pending) == [resumed.queue_offset]
