from __future__ import annotations

import pytest

from escrowmq.txn.doubled_halves import HalfStatus
from escrowmq.txn.end_claim import EndResult
from escrowmq.txn.end_rules import EndContext, apply_rules, plain_end_state
from escrowmq.txn.open_half import OpenHalf
from escrowmq.txn.state import State, Verdict

from .ground import Ground
from .test_end_claim import claim

COMMIT, ROLLBACK, UNKNOWN = Verdict.COMMIT, Verdict.ROLLBACK, Verdict.UNKNOWN


@pytest.fixture(name="ground")
def make_ground() -> Ground:
    return Ground()


@pytest.mark.parametrize(
    ("said", "is_from_check", "state"),
    [
        (8, False, State.COMMITTED),
        (12, False, State.ROLLED_BACK),
        (0, False, None),
        (1, False, None),
        (8, True, None),
        (12, True, None),
    ],
)
def test_only_the_verdict_of_a_producer_itself_is_plain(
    said: int, state: State | None, *, is_from_check: bool
) -> None:
    assert plain_end_state(said, is_from_check=is_from_check) is state


@pytest.mark.parametrize(
    ("state", "verdict", "answer"),
    [
        (State.COMMITTED, COMMIT, EndResult.REPEATED),
        (State.COMMITTED, UNKNOWN, EndResult.REPEATED),
        (State.COMMITTED, ROLLBACK, EndResult.CONTRADICTED),
        (State.ROLLED_BACK, COMMIT, EndResult.CONTRADICTED),
        (State.EXPIRED, ROLLBACK, EndResult.CONTRADICTED),
        (State.SETTLED, ROLLBACK, EndResult.REPEATED),
    ],
)
def test_what_has_ended_is_told(
    ground: Ground, state: State, verdict: Verdict, answer: EndResult
) -> None:
    half = ground.prepare()
    standing = HalfStatus(state, OpenHalf(0, half))
    ended = apply_rules(
        EndContext(claim(half, verdict), standing, ground.engine.halves, ground.now_ms, 6_000)
    )
    assert ended is not None
    assert (ended.answer, ended.state, ended.topic) == (answer, state, "T")


def test_a_count_that_is_not_the_transactions_is_told_the_right_one(ground: Ground) -> None:
    half, _ = (ground.prepare(b"m%d" % n, escrowTransaction="tx") for n in range(2))
    standing = HalfStatus(State.PENDING, OpenHalf(half.queue_offset, half))

    def answer(count: int | None) -> tuple[EndResult, int] | None:
        wish = claim(half, COMMIT, count=count)
        ended = apply_rules(EndContext(wish, standing, ground.engine.halves, ground.now_ms, 6_000))
        return None if ended is None else (ended.answer, ended.count)

    assert (answer(None), answer(2)) == (None, None)
    assert answer(3) == answer(1) == (EndResult.COUNT_WRONG, 2)
