"""Pending halves that are copied to the end of the log, so that its old files can go."""

from __future__ import annotations

import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.message import StoredMessage, Topic
from escrowmq.base.own_properties import CARRIED
from escrowmq.errors import StorageError
from escrowmq.txn import carry_forward
from escrowmq.txn.carry_forward import Carrier, note_carried
from escrowmq.txn.check_schedule import LiveProducer
from escrowmq.txn.decisions import StreamQuery
from escrowmq.txn.end_claim import EndResult
from escrowmq.txn.epoch_decision import EpochDecider
from escrowmq.txn.resume import TransactionResumer
from escrowmq.txn.state import State, Verdict

from .ground import HOST, Ground

FIRST_MS = 6_050


def carrying(**settings: int) -> tuple[Ground, Carrier]:
    ground = Ground(BrokerSettings(**settings))  # type: ignore[arg-type]
    ground.members["PG"] = [LiveProducer(1, "a")]
    return ground, Carrier(ground.engine, ground.checker, ground.store)


def carry(ground: Ground, carrier: Carrier) -> int:
    return carrier.carry(ground.store.end_offset, ground.now_ms)


def newest(ground: Ground) -> StoredMessage:
    store, end = ground.store, ground.store.bounds(Topic.HALF, 0)[1]
    ((log_offset, _, _),) = store.read_units(Topic.HALF, 0, end - 1, 1)
    found = store.read(log_offset)
    assert found is not None
    return found


def test_a_half_that_is_asked_about_is_carried_when_its_check_is_answered() -> None:
    ground, carrier = carrying()
    half = ground.prepare(b"x")
    assert len(ground.due(FIRST_MS)) == 1
    assert carry(ground, carrier) == half.log_offset
    assert carrier.carried_count == 0
    ground.checker.note_answer(half.queue_offset, 1)
    assert carry(ground, carrier) == newest(ground).log_offset > half.log_offset
    assert carrier.carried_count == 1


def test_a_half_that_cannot_be_read_keeps_no_other_from_being_carried() -> None:
    ground, carrier = carrying()
    ground.damage(ground.prepare(b"x"))
    ground.prepare(b"y")
    assert carry(ground, carrier) == newest(ground).log_offset
    assert (carrier.carried_count, newest(ground).body) == (1, b"y")


def test_a_half_whose_file_cannot_be_opened_keeps_its_segment_and_raises_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ground, carrier = carrying()
    half = ground.prepare(b"x")
    ground.engine.halves.recent.remove(half.queue_offset)

    def fails(log_offset: int) -> None:
        raise StorageError("Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(ground.store, "read", fails)
        assert carry(ground, carrier) == half.log_offset
    assert carry(ground, carrier) > half.log_offset


def test_without_pending_halves_nothing_is_carried_and_all_of_the_log_may_go() -> None:
    ground, carrier = carrying()
    ground.end(ground.prepare(b"x"), Verdict.COMMIT)
    assert carry(ground, carrier) == ground.store.end_offset
    assert (carrier.carried_count, ground.engine.halves.quarantine) == (0, {})


def test_a_half_whose_copy_has_no_room_stays_where_it_is() -> None:
    ground, carrier = carrying()
    half = ground.prepare(b"x")
    ground.store.refused = frozenset({Topic.HALF})
    assert carry(ground, carrier) == half.log_offset
    assert half.queue_offset in ground.engine.halves.pending
    assert carrier.carried_count == 0


def test_a_half_that_waits_for_its_turn_to_be_asked_about_keeps_it() -> None:
    ground, carrier = carrying(checks_in_flight_max=1)
    first, _ = ground.prepare(b"x"), ground.prepare(b"y")
    assert [ask.half.body for ask in ground.due(FIRST_MS)] == [b"x"]
    ground.end(first, Verdict.COMMIT)
    ground.checker.note_answer(first.queue_offset, 1)
    carry(ground, carrier)
    assert [ask.half.body for ask in ground.due(1)] == [b"y"]


def test_copies_of_ended_transactions_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carry_forward, "_FOLLOWED_MIN", 2)
    ground, carrier = carrying()
    counts = []
    for number in range(9):
        ground.prepare(b"%d" % number)
        carry(ground, carrier)
        counts.append(len(ground.engine.halves.carried))
        ground.end(newest(ground), Verdict.COMMIT)
    assert counts == [1, 2, 3, 4, 1, 2, 3, 4, 1]


def test_who_only_reads_of_copies_forgets_them_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a member of a group that is not the master."""
    monkeypatch.setattr(carry_forward, "_FOLLOWED_MIN", 2)
    ground, _ = carrying()
    counts = []
    for number in range(7):
        note_carried(ground.engine.halves, {CARRIED: f"{number}:30:1"}, 10 + number, 500)
        counts.append(len(ground.engine.halves.carried))
    assert max(counts) == 2


def test_a_copy_that_does_not_say_of_what_is_followed_nowhere() -> None:
    ground, _ = carrying()
    halves = ground.engine.halves
    assert note_carried(halves, {CARRIED: "x"}, 5, 500) == -1
    assert halves.carried == {}
    assert note_carried(halves, {CARRIED: "3:30:1"}, 5, 500) == 3
    assert note_carried(halves, {CARRIED: "3:30:1"}, 7, 700) == 5
    assert halves.carried == {3: (7, 700)}


@pytest.mark.parametrize("is_sealed", [True, False])
def test_a_start_knows_the_copy_alone(*, is_sealed: bool) -> None:
    ground, carrier = carrying()
    half = ground.prepare(b"x")
    for _ in range(2):
        ground.now_ms += 1_000
        carry(ground, carrier)
        if is_sealed:
            ground.engine.unsealed.seal(ground.now_ms)
    ground.reopen()
    assert list(ground.engine.halves.pending) == [2]
    assert ground.engine.halves.pending.row(2).stored_ms == half.stored_ms
    assert ground.engine.halves.carried == {0: (2, newest(ground).log_offset)}
    ground.end(half, Verdict.COMMIT)
    assert ground.finals() == [b"x"]


def test_an_end_may_name_any_copy_of_a_half_that_was_carried_twice() -> None:
    ground, carrier = carrying()
    ground.prepare(b"x")
    carry(ground, carrier)
    copy = newest(ground)
    carry(ground, carrier)
    assert ground.end(copy, Verdict.COMMIT).answer is EndResult.DONE
    assert ground.finals() == [b"x"]


@pytest.mark.parametrize("names_copy", [False, True])
@pytest.mark.parametrize("verdict", [Verdict.COMMIT, Verdict.ROLLBACK])
def test_an_end_of_a_carried_half_is_answered_alike_after_a_start(
    verdict: Verdict, *, names_copy: bool
) -> None:
    ground, carrier = carrying()
    half = ground.prepare(b"x")
    carry(ground, carrier)
    ground.engine.unsealed.seal(ground.now_ms)
    half = newest(ground) if names_copy else half
    carry(ground, carrier)
    ground.engine.unsealed.seal(ground.now_ms)
    ground.end(half, verdict)
    other = Verdict.COMMIT if verdict is Verdict.ROLLBACK else Verdict.ROLLBACK
    before = [ground.end(half, each) for each in (verdict, other)]
    assert [each.answer for each in before] == [EndResult.REPEATED, EndResult.CONTRADICTED]
    ground.reopen(half_offset=3, op_offset=3)
    again = [ground.end(half, each) for each in (verdict, other)]
    assert [(each.answer, each.state) for each in again] == [
        (each.answer, each.state) for each in before
    ]


@pytest.mark.parametrize("group", ["A", "Z"])
def test_the_copy_of_another_half_is_not_found_instead(group: str) -> None:
    """Its sender has guessed the key, and where the half is."""
    ground, carrier = carrying()
    half = ground.prepare(b"x")
    carry(ground, carrier)
    ground.engine.unsealed.seal(ground.now_ms)
    ground.end(half, Verdict.COMMIT)
    place = f"{half.queue_offset}:{half.log_offset}:1"
    other = ground.prepare(b"x", group=group, **{CARRIED: place})
    ground.end(other, Verdict.ROLLBACK)
    ground.reopen(half_offset=3, op_offset=2)
    assert ground.end(half, Verdict.COMMIT).state is State.COMMITTED


@pytest.mark.parametrize("first", ["of an older release", "0:0:1"])
def test_a_half_that_names_itself_or_nothing_as_its_first_is_no_copy(first: str) -> None:
    ground, _ = carrying()
    ground.prepare(b"x", **{CARRIED: first})
    ground.reopen()
    assert list(ground.engine.halves.pending) == [0]
    assert ground.engine.halves.quarantine == {}


def carry_first(ground: Ground, carrier: Carrier, half: StoredMessage) -> None:
    """Carry one half forward, and not the ones after it."""
    carrier.carry(half.log_offset + 1, ground.now_ms)
    assert carrier.carried_count == 1
    ground.engine.unsealed.seal(ground.now_ms)


@pytest.mark.parametrize("restarts", [False, True])
def test_messages_of_a_transaction_keep_their_order_when_some_are_carried(
    *, restarts: bool
) -> None:
    ground, carrier = carrying()
    halves = [ground.prepare(body, escrowTransaction="tx") for body in (b"1", b"2", b"3")]
    carry_first(ground, carrier, halves[0])
    if restarts:
        ground.reopen()
    ground.end(halves[1], Verdict.COMMIT)
    assert ground.finals() == [b"1", b"2", b"3"]


def test_a_carried_half_stays_the_one_that_is_checked() -> None:
    ground, carrier = carrying()
    halves = [ground.prepare(body, escrowTransaction="tx") for body in (b"1", b"2")]
    carry_first(ground, carrier, halves[0])
    (ask,) = ground.due(FIRST_MS)
    assert (ask.half.body, ask.queue_offset) == (b"1", 2)
    ground.checker.note_answer(ask.queue_offset, 1)
    carrier.carry(ground.store.end_offset, ground.now_ms)
    assert carrier.carried_count == 3
    ground.end(halves[1], Verdict.COMMIT)
    assert ground.finals() == [b"1", b"2"]


def test_an_undone_rollback_leaves_a_carried_half_in_its_place() -> None:
    ground, carrier = carrying()
    halves = [ground.prepare(body, escrowTransaction="tx") for body in (b"1", b"2")]
    carry_first(ground, carrier, halves[0])
    ground.store.refused = frozenset({Topic.OP})
    ground.end(halves[0], Verdict.ROLLBACK)
    ground.store.refused = frozenset()
    ground.end(halves[0], Verdict.COMMIT)
    assert ground.finals() == [b"1", b"2"]


@pytest.mark.parametrize("restarts", [False, True])
def test_messages_of_a_batch_keep_their_order_when_some_are_carried(*, restarts: bool) -> None:
    ground, carrier = carrying()
    halves = [ground.prepare(b, escrowEpoch="q/1", escrowToken="a") for b in (b"1", b"2", b"3")]
    carry_first(ground, carrier, halves[0])
    if restarts:
        ground.reopen()
    decider = EpochDecider(ground.engine, ground.store, host=HOST)
    assert decider.decide(StreamQuery("PG", "q"), 1, {"a": 3}, ground.now_ms).is_new
    assert ground.finals() == [b"1", b"2", b"3"]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_carried_half_that_is_resumed_is_as_old_as_its_resumption(*, restarts: bool) -> None:
    """Otherwise the next start gives it up again, without a check."""
    ground, carrier = carrying()
    half = ground.prepare(b"x")
    carry(ground, carrier)
    ground.engine.unsealed.seal(ground.now_ms)
    kept_ms = ground.store_settings.reserved_hours * 3_600_000
    assert ground.due(kept_ms + FIRST_MS) == []
    (kept,) = ground.messages(Topic.CHECK_MAX_TIME)
    ground.engine.unsealed.seal(ground.now_ms)
    assert TransactionResumer(ground.engine, ground.store).resume(kept, ground.now_ms).count == 1
    if restarts:
        ground.reopen()
    (queue_offset,) = ground.engine.halves.pending
    assert ground.engine.halves.pending.row(queue_offset).stored_ms == ground.now_ms
    assert len(ground.due(FIRST_MS)) == 1
    ground.end(half, Verdict.COMMIT)
    assert ground.finals() == [b"x"]


def test_an_undone_rollback_leaves_a_carried_half_of_a_batch_in_its_place() -> None:
    ground, carrier = carrying()
    halves = [ground.prepare(b, escrowEpoch="q/1", escrowToken="a") for b in (b"1", b"2")]
    carry_first(ground, carrier, halves[0])
    copy = newest(ground).queue_offset
    settled = ground.engine.halves.settle(copy, State.ROLLED_BACK, ground.now_ms)
    ground.engine.halves.restore(settled, ground.now_ms)
    decider = EpochDecider(ground.engine, ground.store, host=HOST)
    assert decider.decide(StreamQuery("PG", "q"), 1, {"a": 2}, ground.now_ms).is_new
    assert ground.finals() == [b"1", b"2"]
