"""What a start knows of pending halves: their age, their checks, and whose copies they are."""

from __future__ import annotations

import pytest

from escrowmq.txn.end_claim import EndResult
from escrowmq.txn.state import State, Verdict

from .ground import FIRST_MS, A, Ground, ground_of


@pytest.fixture(name="ground")
def make_ground() -> Ground:
    return Ground()


def test_many_halves_of_a_clock_that_was_ahead_are_as_old_as_the_start(ground: Ground) -> None:
    """Those that are alike are read together."""
    ground.now_ms += 86_400_000
    for number in range(100):
        ground.prepare(b"%04d" % number)
    ground.now_ms -= 86_400_000
    ground.reopen()
    pending = ground.engine.halves.pending
    assert {pending.row(number).stored_ms for number in pending} == {ground.now_ms}
    assert len(pending) == 100


def test_a_half_of_which_another_has_the_key_is_no_copy_of_it(ground: Ground) -> None:
    """Its producer sent it anew after the first was given up; only the broker's copies stand for
    the first."""
    first = ground.prepare(b"1")
    ground.decide(first, Verdict.EXPIRE)
    ground.engine.unsealed.seal(ground.now_ms)
    second = ground.prepare(b"1", escrowTransaction="another")
    for _ in range(2):
        ended = ground.end(first, Verdict.COMMIT)
        assert (ended.answer, ended.state) == (EndResult.CONTRADICTED, State.EXPIRED)
        assert list(ground.engine.halves.pending) == [second.queue_offset]
        ground.reopen()


def test_the_checks_of_a_plain_half_count_after_a_start() -> None:
    ground = ground_of(A)
    halves = [ground.prepare(b"%d" % number) for number in range(3)]
    ground.due(FIRST_MS)
    ground.prepare(b"later")
    ground.reopen()
    pending = ground.engine.halves.pending
    assert [pending.checks_count(number) for number in pending] == [1] * len(halves) + [0]
