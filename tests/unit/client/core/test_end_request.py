from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.command import Command
from escrowmq.client.core.end_request import (
    Half,
    end_fields,
    half_of_token,
    judge_end,
    token_of,
)
from escrowmq.client.core.sending import (
    Outcome,
)
from escrowmq.errors import (
    BrokerBusy,
    OutcomeContradicted,
    UsageError,
)

halves = st.builds(
    Half,
    broker_name=st.text(),
    topic=st.text(),
    group=st.text(),
    unique_key=st.text(),
    log_offset=st.integers(0, 2**63 - 1),
    queue_offset=st.integers(0, 2**63 - 1),
    signed_id=st.just(""),
)


@given(halves)
def test_an_id_of_our_own_says_all_that_an_end_needs(half: Half) -> None:
    if len(token_of(half)) < 2048:
        assert half_of_token(token_of(half)) == half
        assert "escrowId" not in end_fields(half, Outcome.COMMIT)


@given(st.text() | st.binary())
def test_whatever_is_no_id_is_refused(token: object) -> None:
    try:
        found = half_of_token(token)
    except UsageError:
        return
    assert found.signed_id == token


def test_ends_are_judged_by_what_was_asked_for() -> None:
    for code in (200, 201, 202):
        error = judge_end(Command(code=code), Outcome.COMMIT, address="h:1")
        assert isinstance(error, OutcomeContradicted)
    assert judge_end(Command(code=0), Outcome.COMMIT, address="h:1") is None
    assert isinstance(judge_end(Command(code=2), Outcome.COMMIT, address="h:1"), BrokerBusy)
