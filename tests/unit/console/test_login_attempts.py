from __future__ import annotations

import pytest

from escrowmq.console import login_attempts
from escrowmq.console.login_attempts import LoginAttempts
from escrowmq.console.problems import Problem


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def guess(attempts: LoginAttempts, address: str) -> None:
    attempts.begin_attempt(address)
    attempts.attempt_failed(address)


def test_who_guesses_has_to_wait_and_others_have_not() -> None:
    clock = Clock()
    attempts = LoginAttempts(clock)
    for _ in range(login_attempts.FAILURES_MAX):
        guess(attempts, "192.0.2.1")
    with pytest.raises(Problem, match="try again in 301 s") as refused:
        attempts.begin_attempt("192.0.2.1")
    assert refused.value.status == 429
    attempts.begin_attempt("192.0.2.2")
    clock.now_s += login_attempts.FAILURE_SPAN_S + 1
    attempts.begin_attempt("192.0.2.1")


def test_guesses_from_everywhere_are_bounded_together() -> None:
    clock = Clock()
    attempts = LoginAttempts(clock)
    for nth in range(login_attempts.FAILURES_ALL_MAX):
        guess(attempts, f"192.0.2.{nth}")
    with pytest.raises(Problem, match="try again in 301 s"):
        attempts.begin_attempt("198.51.100.1")
    clock.now_s += login_attempts.FAILURE_SPAN_S + 1
    attempts.begin_attempt("198.51.100.1")


def test_a_login_forgives_the_failures_before_it() -> None:
    attempts = LoginAttempts(Clock())
    for _ in range(login_attempts.FAILURES_MAX - 1):
        guess(attempts, "192.0.2.1")
    attempts.begin_attempt("192.0.2.1")
    attempts.attempt_succeeded("192.0.2.1")
    for _ in range(login_attempts.FAILURES_MAX):
        guess(attempts, "192.0.2.1")


@pytest.mark.parametrize(
    ("count_max", "address"),
    [(login_attempts.FAILURES_MAX, "192.0.2.1"), (login_attempts.FAILURES_ALL_MAX, "192.0.2.{}")],
)
def test_guesses_under_way_count_as_well(count_max: int, address: str) -> None:
    attempts = LoginAttempts(Clock())
    for nth in range(count_max):
        attempts.begin_attempt(address.format(nth))
    with pytest.raises(Problem, match="try again in 1 s"):
        attempts.begin_attempt("192.0.2.1")
    attempts.withdraw_attempt("192.0.2.1")
    attempts.begin_attempt("192.0.2.1")


def test_a_login_forgives_no_guess_that_is_under_way() -> None:
    attempts = LoginAttempts(Clock())
    for _ in range(login_attempts.FAILURES_MAX):
        attempts.begin_attempt("192.0.2.1")
    attempts.attempt_succeeded("192.0.2.1")
    attempts.begin_attempt("192.0.2.1")
    with pytest.raises(Problem):
        attempts.begin_attempt("192.0.2.1")
    for _ in range(login_attempts.FAILURES_MAX):
        attempts.attempt_failed("192.0.2.1")
    with pytest.raises(Problem, match="try again in 301 s"):
        attempts.begin_attempt("192.0.2.1")
