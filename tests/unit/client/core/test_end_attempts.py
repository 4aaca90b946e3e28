"""How often, and how, a broker is told the end of a transaction."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from escrowmq.base.command import Command
from escrowmq.client.core.end_attempts import EndAttempts
from escrowmq.client.core.end_request import Half
from escrowmq.client.core.sending import Outcome
from escrowmq.errors import (
    ConnectFailed,
    ConnectionLost,
    OutcomeContradicted,
    OutcomeUnknown,
    PermissionDenied,
    RequestTimeout,
    RouteMissing,
)

OURS = Half(
    broker_name="b", topic="T", group="PG", unique_key="K", log_offset=1, queue_offset=2,
    signed_id="id-1",
)  # fmt: skip
FOREIGN = Half(broker_name="b", topic="T", group="PG", unique_key="K", log_offset=1, queue_offset=2)


def telling(half: Half, outcome: Outcome = Outcome.COMMIT, *, count: int = 0) -> EndAttempts:
    return EndAttempts(half, outcome, count=count, timeout_ms=3_000, started=100.0)


def reply(code: int, **ext: str) -> Command:
    return Command(code=code, opaque=1, ext=ext)


def test_a_confirmed_end_is_told_no_more() -> None:
    assert telling(OURS).report_attempt(reply(0), now=100.1) is None
    assert telling(FOREIGN).report_attempt(reply(0), now=100.1) is None


def test_the_count_of_messages_goes_with_a_commit_alone() -> None:
    assert telling(OURS, count=3).fields["escrowCount"] == "3"
    assert "escrowCount" not in telling(OURS, Outcome.ROLLBACK, count=3).fields


def test_our_brokers_are_told_again_with_longer_pauses_until_the_time_is_over() -> None:
    one, now = telling(OURS), 100.0
    pauses: list[float] = []

    def tell_on() -> None:
        nonlocal now
        while (pause_s := one.report_attempt(ConnectionLost("gone"), now=now)) is not None:
            pauses.append(pause_s)
            now += pause_s

    with pytest.raises(OutcomeUnknown, match="did not confirm the COMMIT of transaction K: gone"):
        tell_on()
    assert pauses[:3] == [0.02, 0.04, 0.08]
    assert max(pauses) == 0.5
    assert 102.4 < now < 103.0
    assert telling(OURS).left_s(101.0) == 2.0
    assert telling(OURS).left_s(104.0) > 0, "an attempt that is begun has a moment"


@pytest.mark.parametrize("came", [ConnectionLost("gone"), RequestTimeout("late"), reply(2)])
def test_a_foreign_broker_that_may_have_heard_it_is_not_told_again(came: object) -> None:
    with pytest.raises(OutcomeUnknown):
        telling(FOREIGN).report_attempt(came, now=100.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("came", [ConnectFailed("away"), RouteMissing("unknown")])
def test_a_foreign_broker_that_was_not_reached_is(came: ConnectFailed) -> None:
    assert telling(FOREIGN).report_attempt(came, now=100.0) == 0.02


def test_what_a_broker_refuses_for_good_is_raised_as_it_is() -> None:
    with pytest.raises(PermissionDenied):
        telling(OURS).report_attempt(reply(16), now=100.0, address="b:1")
    with pytest.raises(OutcomeContradicted, match="rolled_back"):
        telling(OURS).report_attempt(reply(201, escrowOutcome="rolled_back"), now=100.0)


def test_an_end_after_its_time_is_told_as_the_answer_to_a_check_once() -> None:
    one = telling(FOREIGN)
    illegal = reply(604)
    assert one.fields["fromTransactionCheck"] == "false"
    assert one.report_attempt(illegal, now=100.0) == 0.0
    assert one.fields["fromTransactionCheck"] == "true"
    with pytest.raises(OutcomeUnknown):
        one.report_attempt(illegal, now=100.0)


def test_an_outcome_that_is_not_known_is_told_with_what_names_the_transaction() -> None:
    for half, name in ((OURS, "transaction K"), (replace(OURS, unique_key=""), "transaction id-1")):
        one = telling(half)
        with pytest.raises(OutcomeUnknown, match=name):
            one.report_attempt(RequestTimeout("no answer"), now=200.0)
