"""Due halves that cannot be checked, or ended, just now or at all."""

from __future__ import annotations

import pytest

from escrowmq.base.message import StoredMessage, Topic
from escrowmq.errors import StorageError
from escrowmq.txn.check_schedule import FAILURES_MAX, RETRY_MS
from escrowmq.txn.decisions import LastDecision, StreamQuery
from escrowmq.txn.epoch_decision import EpochDecider
from escrowmq.txn.state import Verdict

from .ground import FIRST_MS, HOST, NEXT_MS, A, B, Ground, ground_of


def test_discard_that_cannot_be_stored_is_tried_again() -> None:
    ground = ground_of(A, transaction_checks_max=1)
    half = ground.prepare(b"paid")
    ground.due(FIRST_MS)
    ground.store.refused = frozenset({Topic.CHECK_MAX_TIME})
    ground.due(NEXT_MS)
    assert half.queue_offset in ground.engine.halves.pending
    ground.store.refused = frozenset()
    ground.due(1_100)
    assert ground.discards() == [b"paid"]


def test_half_that_cannot_be_read_stops_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    ground = ground_of(A)
    halves = [ground.prepare(b"%d" % n) for n in range(10)]
    ground.damage(halves[4])
    asked = {ask.queue_offset for ask in ground.due(FIRST_MS)}
    assert asked == {0, 1, 2, 3, 5, 6, 7, 8, 9}
    assert set(ground.engine.halves.quarantine) == {4}
    assert "cannot be judged" not in caplog.text


def test_half_that_cannot_be_judged_is_set_aside_and_stops_nobody_else() -> None:
    ground = ground_of(A)
    halves = [ground.prepare(b"%d" % n) for n in range(3)]

    def may_see(peer: int, topic: str, group: str, owner: str) -> bool:
        if ground.engine.halves.pending.oldest_offset() == halves[0].queue_offset:
            raise ValueError("an account of a kind that nobody knows")
        return True

    ground.checker.may_see = may_see
    assert [ask.queue_offset for ask in ground.due(FIRST_MS)] == [1, 2]
    assert ground.engine.halves.quarantine == {
        0: "ValueError: an account of a kind that nobody knows"
    }


def test_half_whose_log_cannot_be_read_just_now_is_checked_after_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ground = ground_of(A)
    ground.members["Other"] = [B]
    ground.prepare(b"read")
    for body in (b"1", b"2"):
        ground.engine.halves.recent.remove(ground.prepare(body, group="Other").queue_offset)

    def fails(log_offset: int) -> None:
        raise OSError("too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(ground.store, "read", fails)
        assert [ask.peer for ask in ground.due(FIRST_MS)] == [1], "that check leaves all the same"
        assert not ground.due(50)
    assert caplog.text.count("a half of group Other is checked later: too many open files") == 1
    assert len(ground.due(RETRY_MS)) == 2


def test_unreadable_halves_of_a_group_let_those_of_others_and_its_own_be_checked() -> None:
    ground = ground_of(A)
    ground.members["Other"] = [B]
    halves = [ground.prepare(b"%d" % n) for n in range(120)]
    lost = {half.log_offset for half in halves}
    ground.prepare(b"its own", group="PG")
    ground.prepare(b"of another", group="Other")
    for half in halves:
        ground.engine.halves.recent.remove(half.queue_offset)
    read = ground.store.read

    def fails(log_offset: int) -> StoredMessage | None:
        if log_offset in lost:
            raise StorageError("Input/output error")
        return read(log_offset)

    ground.store.read = fails  # type: ignore[method-assign]
    asked = [ask.half.body for ask in ground.due(FIRST_MS)]
    for _ in range(4):
        asked += [ask.half.body for ask in ground.due(RETRY_MS)]
    assert sorted(asked) == [b"its own", b"of another"]


def test_one_turn_reads_so_many_halves_in_vain_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    ground = ground_of(A)
    for number in range(2 * FAILURES_MAX):
        ground.engine.halves.recent.remove(ground.prepare(b"%d" % number).queue_offset)
    read: list[int] = []

    def fails(log_offset: int) -> None:
        read.append(log_offset)
        raise OSError("Input/output error")

    monkeypatch.setattr(ground.store, "read", fails)
    ground.due(FIRST_MS)
    assert len(read) == FAILURES_MAX


def test_half_that_is_ended_while_it_waits_for_its_turn_is_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ground = ground_of(A, checks_in_flight_max=1)
    halves = [ground.prepare(b"%d" % n) for n in range(3)]
    assert [ask.queue_offset for ask in ground.due(FIRST_MS)] == [0]
    ground.end(halves[1], Verdict.COMMIT)
    ground.checker.note_answer(0, 1)
    assert [ask.queue_offset for ask in ground.due(50)] == [2]
    assert caplog.text == ""


def test_owed_end_that_cannot_be_stored_is_tried_again() -> None:
    ground = ground_of(A)
    half = ground.prepare(b"paid")
    ground.engine.halves.schedule_rest([half.queue_offset], Verdict.COMMIT, ground.now_ms)
    ground.store.refused = frozenset({"T"})
    assert ground.due(50) == []
    ground.store.refused = frozenset()
    assert ground.finals() == []
    ground.due(RETRY_MS + 50)
    assert ground.finals() == [b"paid"]


def epoch_half(ground: Ground) -> int:
    ground.prepare(b"row", escrowEpoch="q/1", escrowToken="a")
    return ground.now_ms


def test_half_of_an_epoch_is_dropped_in_the_millisecond_in_which_its_time_is_over() -> None:
    ground = ground_of(A)
    stored_ms = epoch_half(ground)
    for passed_ms, count in ((-1, 1), (0, 0)):
        ground.now_ms = stored_ms + ground.settings.epoch_ms + passed_ms
        ground.checker.check_now(list(ground.engine.halves.pending), ground.now_ms)
        assert ground.due(0) == []
        assert len(ground.engine.halves.pending) == count


@pytest.mark.parametrize("is_decided_now", [True, False])
def test_decided_half_of_an_epoch_that_cannot_be_stored_is_tried_again(
    *, is_decided_now: bool
) -> None:
    ground = ground_of(A)
    epoch_half(ground)
    ground.store.refused = frozenset({"T"})
    if is_decided_now:
        decider = EpochDecider(ground.engine, ground.store, host=HOST)
        decider.decide(StreamQuery("PG", "q"), 1, {"a": 1}, ground.now_ms)
    else:
        ground.engine.halves.epochs.decisions.record(
            StreamQuery("PG", "q"), LastDecision(1, {"a": 1})
        )
        ground.checker.check_now([0], ground.now_ms)
        ground.due(50)
    assert ground.finals() == []
    ground.store.refused = frozenset()
    ground.due(RETRY_MS + 50)
    assert ground.finals() == [b"row"]
