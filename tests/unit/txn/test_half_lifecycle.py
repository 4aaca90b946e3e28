"""What becomes of a pending half in all tables that know it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.message import Message
from escrowmq.txn import half_lifecycle
from escrowmq.txn.bundle import bundle_of
from escrowmq.txn.check_schedule import LiveProducer
from escrowmq.txn.half_identity import identity_of_half
from escrowmq.txn.half_lifecycle import Halves
from escrowmq.txn.state import State, Verdict

from .ground import Ground

SETTLE: dict[str, Callable[[Halves, int], object]] = {
    "settle": lambda halves, at: halves.settle(at, State.COMMITTED, 1_000),
    "one plain": lambda halves, at: halves.settle_one_plain(at, State.COMMITTED, 1_000),
    "plain": lambda halves, at: halves.settle_plain({at: State.COMMITTED}, 1_000),
    "forget": lambda halves, at: halves.remove_settled_elsewhere(at),
    "set aside": lambda halves, at: halves.set_aside(at, "planted"),
}


@pytest.mark.parametrize("how", SETTLE)
def test_nothing_is_kept_of_a_half_that_is_settled(how: str) -> None:
    ground = Ground()
    halves = ground.engine.halves
    one, other = (ground.prepare(body).queue_offset for body in (b"x", b"y"))
    halves.schedule_rest([one, other], Verdict.COMMIT, ground.now_ms)
    for queue_offset in (one, other):
        halves.note_open_report(queue_offset, 7)
        halves.park(queue_offset, "PG")
    SETTLE[how](halves, one)
    assert one not in halves.pending
    assert (halves.take_open_reporter(one), halves.take_open_reporter(other)) == (None, 7)
    assert (halves.partly_ended, dict(halves.parked)) == (
        {other: Verdict.COMMIT},
        {"PG": {other: None}},
    )


def test_a_half_that_replaces_another_has_its_decision_and_its_holder() -> None:
    ground = Ground()
    halves = ground.engine.halves
    old, new = (ground.prepare(body).queue_offset for body in (b"x", b"y"))
    halves.schedule_rest([old], Verdict.COMMIT, ground.now_ms)
    halves.note_open_report(old, 7)
    halves.supersede(old, new)
    assert halves.partly_ended == {new: Verdict.COMMIT}
    assert halves.take_open_reporter(new) == 7


def test_a_transaction_whose_first_half_is_set_aside_is_asked_about_by_the_next() -> None:
    ground = Ground()
    ground.members["PG"] = [LiveProducer(1, "a")]
    first, second = (ground.prepare(body, escrowTransaction="tx") for body in (b"x", b"y"))
    (ask,) = ground.due(6_050)
    assert ask.queue_offset == first.queue_offset
    ground.engine.halves.set_aside(first.queue_offset, "planted")
    (ask,) = ground.due(50)
    assert ask.queue_offset == second.queue_offset


def test_a_rollback_that_was_undone_leaves_a_transaction_that_can_grow() -> None:
    ground = Ground()
    halves = ground.engine.halves
    half = ground.prepare(escrowTransaction="tx")
    bundle = bundle_of(half.properties)
    assert bundle is not None
    settled = halves.settle(half.queue_offset, State.ROLLED_BACK, ground.now_ms)
    assert halves.bundles.refusal(bundle)
    halves.restore(settled, ground.now_ms)
    assert not halves.bundles.refusal(bundle)
    assert half.queue_offset in halves.pending
    plain = ground.prepare(b"plain")
    settled = halves.settle(plain.queue_offset, State.ROLLED_BACK, ground.now_ms)
    halves.restore(settled, ground.now_ms)
    assert plain.queue_offset in halves.pending


WISH = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "30"}


@pytest.mark.parametrize(
    ("properties", "wait_ms"),
    [
        ({}, 6_000),
        (WISH, 30_000),
        ({"escrowEpoch": "q/1", "escrowToken": "t"}, 500_000),
        ({"escrowEpoch": "q/1", "escrowToken": "t", **WISH}, 30_000),
        ({"escrowEpoch": "odd", "escrowToken": "t"}, 6_000),
    ],
)
def test_a_half_waits_as_long_as_its_kind(properties: dict[str, str], wait_ms: int) -> None:
    ground = Ground(BrokerSettings(epoch_ms=500_000, transaction_timeout_ms=6_000))
    half = ground.prepare(b"body", **properties)
    row = ground.engine.halves.pending.row(half.queue_offset)
    assert 0 <= row.due_ms - row.stored_ms - wait_ms < 100


def test_a_record_of_another_topic_is_no_half_although_the_index_leads_to_it() -> None:
    ground = Ground()
    put = ground.store.put(Message(topic="Other", body=b"x"), ground.now_ms)
    halves = ground.engine.halves
    halves.add_half({}, queue_offset=0, log_offset=put.log_offset, stored_ms=put.stored_ms)
    assert halves.read_half(0) is None


def test_an_end_may_name_a_former_copy_by_its_key_alone() -> None:
    ground = Ground()
    for key in ("", "K"):
        ground.prepare(key.encode(), UNIQ_KEY=key, TRANSACTION_CHECK_TIMES="1")
    ground.reopen()
    assert ground.engine.halves.aliases == {("K", "PG", "T"): 1}


def test_former_copies_are_forgotten_with_their_transactions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(half_lifecycle, "_ALIASES_MIN", 4)
    ground = Ground()
    halves = [ground.prepare(b"x", UNIQ_KEY=f"K{n}") for n in range(20)]
    pending = ground.engine.halves
    for half in halves:
        pending.settle(half.queue_offset, State.EXPIRED, ground.now_ms)
        copy = ground.engine.resume_half(half, ground.now_ms)
        assert pending.aliases[identity_of_half(half.properties)] == copy.queue_offset
        if half is not halves[10]:
            pending.settle(copy.queue_offset, State.COMMITTED, ground.now_ms)
    assert len(pending.aliases) < 10
    assert identity_of_half(halves[10].properties) in pending.aliases


def test_figures_of_a_deleted_topic_stay_away_with_a_rollback_that_is_undone() -> None:
    ground = Ground()
    half = ground.prepare()
    halves = ground.engine.halves
    settled = halves.settle(half.queue_offset, State.ROLLED_BACK, ground.now_ms)
    assert halves.meter.rolled_back == {"T": 1}
    halves.restore(settled, ground.now_ms)
    assert halves.meter.rolled_back == {"T": 0}
    settled = halves.settle(half.queue_offset, State.ROLLED_BACK, ground.now_ms)
    halves.meter.remove_topic("T")
    halves.restore(settled, ground.now_ms)
    assert (halves.meter.rolled_back, halves.counters.rolled_back) == ({}, 0)
    assert halves.meter.pending == {"T": 1}
    halves.meter.remove_topic("T")
    assert halves.meter.pending == {"T": 1}
    halves.remove_settled_elsewhere(half.queue_offset)
    assert halves.meter.pending == {}
