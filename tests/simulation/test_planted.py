"""Bugs planted on purpose: the simulator must find each within the seeds of a commit.

This guards the guard. Each plant spoils a broker by replacing a method of one of its parts."""

from collections.abc import Callable
from typing import Any

import pytest

from escrowmq.base.codes import Response
from escrowmq.base.message import StoredMessage
from escrowmq.broker.core import BrokerCore
from escrowmq.codec.command import encode_reply
from escrowmq.testing.sim.stage import Violation
from escrowmq.testing.sim.world import World
from escrowmq.txn.engine import Answer, Ended
from escrowmq.txn.half import final_of
from escrowmq.txn.state import State, Verdict

SEEDS = 200
"""As many as test_transactions runs."""

Plant = Callable[[BrokerCore], None]


def answer_before_durable(core: BrokerCore) -> None:
    """SYNC_FLUSH, and the reply does not wait for the sync."""
    putter = core._ends._putter

    def answer(peer: Any, request: Any, put: Any, *, reply: Any = None, **rest: Any) -> bytes:
        return reply or encode_reply(request, Response.SUCCESS, ext=rest["ext"])

    putter.answer = answer  # type: ignore[method-assign]


def op_record_dropped(core: BrokerCore) -> None:
    """One op record in ten is believed to be written."""
    engine = core._ends.engine
    seal = engine.seal
    count = 0

    def spoilt(now_ms: int) -> tuple[int, frozenset[int]]:
        nonlocal count
        count += 1
        if count % 10 == 0:
            engine._done.clear()
        return seal(now_ms)

    engine.seal = spoilt  # type: ignore[method-assign]


def undelivered_check_counted(core: BrokerCore) -> None:
    """A check that reached nobody counts, as at the peer."""
    core.broker.settings.counts_all_checks = True


def double_final(core: BrokerCore) -> None:
    """A commit that is repeated makes its message visible again."""
    engine = core._ends.engine
    before = engine._ended_before

    def spoilt(half: StoredMessage, verdict: Verdict) -> Ended:
        ended = before(half, verdict)
        if ended.state == State.COMMITTED and verdict == Verdict.COMMIT:
            final = final_of(half)
            assert final is not None
            engine._store.put(final, 0)
        return ended

    engine._ended_before = spoilt  # type: ignore[method-assign]


def later_end_wins(core: BrokerCore) -> None:
    """An end that contradicts the first is answered OK and told as the outcome."""
    engine = core._ends.engine
    before = engine._ended_before

    def spoilt(half: StoredMessage, verdict: Verdict) -> Ended:
        ended = before(half, verdict)
        if ended.answer is Answer.CONTRADICTED:
            ended.answer = Answer.REPEATED
            ended.state = State.COMMITTED if verdict == Verdict.COMMIT else State.ROLLED_BACK
            engine.ledger.record(half.queue_offset, ended.state)
        return ended

    engine._ended_before = spoilt  # type: ignore[method-assign]


def rollback_lost_at_restart(core: BrokerCore) -> None:
    """A start takes only the commits out of the op records."""
    recovery = core._ends._recovery
    read = recovery._read_ops

    def spoilt(op_offset: int, half_start: int) -> int:
        count = read(op_offset, half_start)
        for offset in [o for o, s in recovery._done.items() if s == State.ROLLED_BACK]:
            del recovery._done[offset]
        return count

    recovery._read_ops = spoilt  # type: ignore[method-assign]


def parked_for_ever(core: BrokerCore) -> None:
    """What waits for a producer of its group is not asked about when one comes."""
    core._ends.checker.producer_came = lambda group, now_ms: None  # type: ignore[method-assign]


def silence_holds_its_place(core: BrokerCore) -> None:
    """A check that stays unanswered keeps its place among those under way."""
    checker = core._ends.checker

    def spoilt(now_ms: int) -> None:
        while checker._by_deadline and checker._by_deadline[0].deadline_ms <= now_ms:
            checker._by_deadline.popleft()

    checker._expire_silent = spoilt  # type: ignore[method-assign]


def progress_before_durable(core: BrokerCore) -> None:
    """The progress of the half queue reaches the disk before the ends that it rests on."""
    marks = core._ends._marks
    take = marks.take
    marks.take = lambda durable_offset: take(1 << 62)  # type: ignore[method-assign]


def repeated_end_answered_at_once(core: BrokerCore) -> None:
    """The outcome of an end that is not durable yet is told to whoever asks next."""
    ends = core._ends
    answer = ends._answer_ended

    def spoilt(item: Any, log_end: int, now_ms: int) -> bytes | None:
        if item.ended.answer is not Answer.DONE:
            log_end = 0
        return answer(item, log_end, now_ms)

    ends._answer_ended = spoilt  # type: ignore[method-assign]


def undone_end_passed_over(core: BrokerCore) -> None:
    """A half whose end could not be stored is pending again, and not looked for in its place."""
    pending = core._ends.engine.pending
    pending.oldest = lambda: next(iter(pending), None)  # type: ignore[method-assign]


def offsets_kept_after_loss(core: BrokerCore) -> None:
    """Groups keep offsets beyond the end of a queue that lost its tail."""
    core.broker.offsets.cut = lambda end_of, now_ms: 0  # type: ignore[method-assign]


PLANTS = [
    answer_before_durable,
    op_record_dropped,
    undelivered_check_counted,
    double_final,
    later_end_wins,
    rollback_lost_at_restart,
    parked_for_ever,
    silence_holds_its_place,
    progress_before_durable,
    repeated_end_answered_at_once,
    offsets_kept_after_loss,
    undone_end_passed_over,
]


def seeds_needed(plant: Plant) -> int | None:
    """How many seeds it takes to find a planted bug; None when all of them miss it."""
    for seed in range(SEEDS):
        try:
            World(seed, plant=plant).run()
        except Violation:
            return seed + 1
    return None


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_the_simulator_finds_a_planted_bug(plant: Plant) -> None:
    assert seeds_needed(plant) is not None
