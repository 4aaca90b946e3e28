from __future__ import annotations

import pytest

from escrowmq.base.message import StoredMessage
from escrowmq.txn.doubled_halves import Standing
from escrowmq.txn.end_claim import Claim, EndResult, judged
from escrowmq.txn.state import State, Verdict

from .ground import Ground

COMMIT, ROLLBACK, UNKNOWN = Verdict.COMMIT, Verdict.ROLLBACK, Verdict.UNKNOWN


@pytest.fixture(name="ground")
def make_ground() -> Ground:
    return Ground()


def claim(half: StoredMessage, verdict: Verdict, **named: object) -> Claim:
    return Claim(
        log_offset=half.log_offset,
        queue_offset=half.queue_offset,
        group="PG",
        verdict=verdict,
        **named,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("ids", "is_meant"),
    [
        (("", ""), True),
        (("", "another"), True),
        (("key", "another"), True),
        (("another", "key"), True),
        (("another", ""), False),
        (("another", "another"), False),
    ],
)
def test_a_claim_that_names_a_transaction_means_no_other(
    ground: Ground, ids: tuple[str, str], is_meant: bool
) -> None:
    half = ground.prepare(UNIQ_KEY="key")
    assert claim(half, COMMIT, ids=ids).means(half) is is_meant
    keyless = ground.prepare(UNIQ_KEY="")
    assert claim(keyless, COMMIT, ids=ids).means(keyless)


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
    ended = judged(
        claim(half, verdict),
        Standing(state, 0, half),
        ground.engine.halves,
        now_ms=ground.now_ms,
        timeout_ms=6_000,
    )
    assert ended is not None
    assert (ended.answer, ended.state, ended.topic) == (answer, state, "T")


def test_a_count_that_is_not_the_transactions_is_told_the_right_one(ground: Ground) -> None:
    half, _ = (ground.prepare(b"m%d" % n, escrowTransaction="tx") for n in range(2))
    standing = Standing(State.PENDING, half.queue_offset, half)

    def answer(count: int | None) -> tuple[EndResult, int] | None:
        ended = judged(
            claim(half, COMMIT, count=count),
            standing,
            ground.engine.halves,
            now_ms=ground.now_ms,
            timeout_ms=6_000,
        )
        return None if ended is None else (ended.answer, ended.count)

    assert (answer(None), answer(2)) == (None, None)
    assert answer(3) == answer(1) == (EndResult.COUNT_WRONG, 2)
