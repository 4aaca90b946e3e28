"""What a producer answers to checks of its own transactions."""

from __future__ import annotations

import gc

import pytest

from escrowmq.client.core import verdicts as module
from escrowmq.client.core.sending import Outcome
from escrowmq.client.core.verdicts import KnownOutcomes, TransactionCourse
from escrowmq.errors import ConnectionLost, OutcomeContradicted


def test_an_open_block_is_not_decided_and_one_that_is_gone_is_the_users() -> None:
    verdicts = KnownOutcomes()
    course = TransactionCourse(verdicts)
    course.begin("K")
    assert verdicts.outcome_of({"UNIQ_KEY": "K"}) is Outcome.UNKNOWN
    assert verdicts.outcome_of({"UNIQ_KEY": "other"}) is None
    course.set_outcome(Outcome.COMMIT)
    assert verdicts.outcome_of({"UNIQ_KEY": "other", "escrowTransaction": "K"}) is Outcome.COMMIT
    course.leave_to_check()
    assert verdicts.outcome_of({"UNIQ_KEY": "K"}) is None
    del course
    gc.collect()
    assert verdicts.outcome_of({"UNIQ_KEY": "K"}) is None


def test_a_block_that_never_starts_is_rolled_back_if_it_has_a_message() -> None:
    verdicts = KnownOutcomes()
    TransactionCourse(verdicts).mark_abandoned()
    assert verdicts.outcome_of({}) is None
    course = TransactionCourse(verdicts)
    course.begin("K")
    course.mark_abandoned()
    assert course.is_abandoned
    del course
    gc.collect()
    assert verdicts.outcome_of({"UNIQ_KEY": "K"}) is Outcome.ROLLBACK


@pytest.mark.parametrize(
    ("outcome", "error", "known"),
    [
        (Outcome.COMMIT, ConnectionLost("gone"), {"K": Outcome.COMMIT}),
        (Outcome.COMMIT, OutcomeContradicted("it was rolled back"), {}),
        (Outcome.UNKNOWN, ConnectionLost("gone"), {}),
    ],
)
def test_an_outcome_is_remembered_where_the_broker_may_not_know_it(
    outcome: Outcome, error: Exception, known: dict[str, Outcome]
) -> None:
    verdicts = KnownOutcomes()
    course = TransactionCourse(verdicts)
    course.begin("K")
    course.set_outcome(outcome)
    course.record_unconfirmed(error)
    assert verdicts._known == known


def test_of_many_outcomes_the_newest_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KNOWN_MAX", 2)
    verdicts = KnownOutcomes()
    for key in ("a", "b", "a", "c"):
        verdicts.remember_outcome(key, Outcome.COMMIT)
    assert list(verdicts._known) == ["a", "c"]
