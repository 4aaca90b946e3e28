"""Halves that a decision about a whole batch settles, and the decisions."""

from __future__ import annotations

import pytest

from escrowmq.errors import UsageError
from escrowmq.txn.decisions import LastDecision, StreamQuery
from escrowmq.txn.epoch import (
    EPOCH_SIZE_MAX,
    TOKEN_SIZE_MAX,
    EpochAttempt,
    Epochs,
    attempt_of,
    parse_epoch,
    stored_attempt,
)
from escrowmq.txn.state import Verdict

QUERY = StreamQuery("PG", "q")
FIRST, SECOND = EpochAttempt(QUERY, 1, "a"), EpochAttempt(QUERY, 1, "b")


def properties(**changed: str) -> dict[str, str]:
    return {"PGROUP": "PG", "escrowEpoch": "q/1", "escrowToken": "a", **changed}


def test_an_epoch_is_a_query_and_the_number_of_its_batch() -> None:
    assert parse_epoch("PG", "q/1") == (QUERY, 1)
    assert parse_epoch("PG", "a/b\n/007") == (StreamQuery("PG", "a/b\n"), 7)
    longest = "q" * (EPOCH_SIZE_MAX - 2) + "/1"
    assert parse_epoch("PG", longest)[1] == 1
    for odd in ("", "q", "/1", "q/", "q/x", "q/-1", "q/" + "1" * 19, "q" + longest):
        with pytest.raises(UsageError, match=f"at most {EPOCH_SIZE_MAX} characters"):
            parse_epoch("PG", odd)


def test_a_half_of_an_epoch_has_a_token_and_is_of_no_bundle() -> None:
    assert attempt_of({}) is None
    assert attempt_of(properties()) == FIRST
    assert attempt_of(properties(escrowToken="t" * TOKEN_SIZE_MAX)) is not None
    for odd in (
        {"escrowToken": ""}, {"escrowToken": "t" * (TOKEN_SIZE_MAX + 1)}, {"escrowEpoch": "q"},
        {"escrowTransaction": "tx"},
    ):  # fmt: skip
        with pytest.raises(UsageError):
            attempt_of(properties(**odd))
        assert stored_attempt(properties(**odd)) is None


def test_nothing_is_kept_of_attempts_without_halves() -> None:
    epochs = Epochs()
    epochs.remove(9)
    for queue_offset, attempt in enumerate((FIRST, FIRST, SECOND)):
        epochs.add(attempt, queue_offset)
    assert epochs.mark_expired(FIRST)
    assert not epochs.mark_expired(FIRST)
    epochs.abandon(FIRST)
    epochs.remove(0)
    assert (epochs.halves(FIRST), epochs.attempts(QUERY)) == ([1], [FIRST, SECOND])
    assert epochs.verdict(FIRST) is Verdict.ROLLBACK
    epochs.remove(1)
    assert (epochs.attempts(QUERY), epochs.queries()) == ([SECOND], [QUERY])
    assert epochs.verdict(FIRST) is None
    assert epochs.mark_expired(FIRST), "it is another one now"
    epochs.remove(2)
    assert (epochs.attempts(QUERY), epochs.queries()) == ([], [])
    epochs.abandon(SECOND)
    assert epochs.verdict(SECOND) is None, "without halves there is nothing to drop"


def test_a_decision_settles_its_batch_and_those_before_it() -> None:
    epochs = Epochs()
    later = EpochAttempt(QUERY, 3, "a")
    for queue_offset, attempt in enumerate((FIRST, SECOND, later)):
        epochs.add(attempt, queue_offset)
    epochs.decisions.record(QUERY, LastDecision(1, {"a": 1}))
    assert [epochs.verdict(one) for one in (FIRST, SECOND, later)] == [
        Verdict.COMMIT, Verdict.ROLLBACK, None,
    ]  # fmt: skip
    assert [bool(epochs.refusal(one)) for one in (FIRST, later)] == [True, False]
    epochs.decisions.record(QUERY, LastDecision(2, {"a": 1}))
    assert epochs.verdict(FIRST) is Verdict.ROLLBACK, "which tokens were valid is not known"
    assert dict(epochs.settled_by_decision()) == {FIRST: Verdict.ROLLBACK, SECOND: Verdict.ROLLBACK}
