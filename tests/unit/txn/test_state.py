from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.txn.state import AFTER, OutcomeLedger, State, Verdict, state_after

WORDS = {
    Verdict.COMMIT: State.COMMITTED,
    Verdict.ROLLBACK: State.ROLLED_BACK,
    Verdict.UNKNOWN: State.PENDING,
    Verdict.EXPIRE: State.EXPIRED,
}


@pytest.mark.parametrize("verdict", Verdict)
def test_pending_transaction_becomes_what_its_verdict_says(verdict: Verdict) -> None:
    assert state_after(State.PENDING, verdict) == WORDS[verdict]


@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize("state", [state for state in State if state != State.PENDING])
def test_settled_transaction_stays_what_it_is(state: State, verdict: Verdict) -> None:
    assert state_after(state, verdict) == state
    assert (state, verdict) not in AFTER


@given(st.lists(st.sampled_from(list(Verdict)), max_size=20))
def test_first_verdict_that_settles_wins_over_all_later_ones(verdicts: list[Verdict]) -> None:
    state = State.PENDING
    for verdict in verdicts:
        state = state_after(state, verdict)
    settling = [verdict for verdict in verdicts if verdict != Verdict.UNKNOWN]
    assert state == (WORDS[settling[0]] if settling else State.PENDING)


@given(
    st.lists(
        st.tuples(st.integers(0, 1 << 40), st.sampled_from([s for s in State if s])), max_size=50
    )
)
def test_ledger_tells_the_last_outcome_of_each_offset(notes: list[tuple[int, State]]) -> None:
    ledger, model = OutcomeLedger(), dict[int, State]()
    for offset, state in notes:
        ledger.record_outcome(offset, state)
        model[offset] = state
    assert {offset: ledger.outcome(offset) for offset in model} == model
    at_once = OutcomeLedger()
    at_once.record_outcomes(model)
    assert {offset: at_once.outcome(offset) for offset in model} == model
    assert ledger.outcome((1 << 41) + 1) is None


def test_outcome_that_was_undone_is_none_again() -> None:
    ledger = OutcomeLedger()
    ledger.record_outcome(5, State.ROLLED_BACK)
    ledger.record_outcome(5, State.PENDING)
    assert ledger.outcome(5) is None
    assert ledger.outcome(6) is None


def test_ledger_forgets_its_oldest_block_when_it_is_full() -> None:
    ledger = OutcomeLedger(blocks_max=2)
    size = 1 << OutcomeLedger.BLOCK_BITS
    for number in range(3):
        ledger.record_outcome(number * size + 7, State.COMMITTED)
    assert [ledger.outcome(n * size + 7) for n in range(3)] == [
        None,
        State.COMMITTED,
        State.COMMITTED,
    ]
