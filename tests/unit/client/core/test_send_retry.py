from __future__ import annotations

import pytest

from escrowmq.base.command import Command
from escrowmq.client.core.send_retry import (
    STORED_CODES,
    BackOff,
    RetryStep,
    may_have_new_master,
    step_after_failure,
    step_after_reply,
)
from escrowmq.errors import (
    SLAVE_REMARK,
    SWITCHING_REMARK,
    BrokerBusy,
    BrokerFault,
    ConnectionLost,
    MessageRefused,
    PermissionDenied,
)


def test_steps_after_answers_and_failures() -> None:
    assert {0, 10, 11, 12} == STORED_CODES
    assert step_after_reply(0, retries_unsafe=True) is RetryStep.DONE
    assert step_after_reply(10, retries_unsafe=False) is RetryStep.DONE
    assert step_after_reply(10, retries_unsafe=True) is RetryStep.AGAIN
    assert step_after_reply(2, retries_unsafe=False) is RetryStep.AGAIN
    assert step_after_reply(13, retries_unsafe=False) is RetryStep.GIVE_UP
    lost = ConnectionLost("gone")
    assert step_after_failure(lost, may_repeat=True) is RetryStep.AGAIN
    assert step_after_failure(lost, may_repeat=False) is RetryStep.GIVE_UP
    assert step_after_failure(BrokerBusy(), may_repeat=False) is RetryStep.AGAIN, (
        "it was not stored"
    )
    assert step_after_failure(MessageRefused(), may_repeat=True) is RetryStep.GIVE_UP
    assert (
        step_after_failure(PermissionDenied("ACL 1.0", code=1), may_repeat=True)
        is RetryStep.GIVE_UP
    )
    assert step_after_failure(PermissionDenied(code=16), may_repeat=True) is RetryStep.AGAIN
    assert step_after_failure(BrokerFault(), may_repeat=True) is RetryStep.AGAIN
    assert step_after_failure(KeyError(), may_repeat=True) is RetryStep.GIVE_UP


def test_pauses_grow_to_their_bound_and_are_none_where_no_time_is_left() -> None:
    pauses = BackOff(most_s=0.1)
    assert [pauses.next_s(9.0) for _ in range(5)] == [0.02, 0.04, 0.08, 0.1, 0.1]
    assert pauses.next_s(0.1) is None
    assert pauses.next_s(0.11) == 0.1


@pytest.mark.parametrize(
    ("code", "remark", "expected"),
    [
        (14, f"service not available now: {SLAVE_REMARK}", True),
        (14, f"{SWITCHING_REMARK} b; try again soon", True),
        (12, None, True),  # stored, and confirmed by no copy: they may follow another master
        (14, "the disk is full", False),
        (1, SLAVE_REMARK, False),
        (0, None, False),
    ],
)
def test_which_answers_are_a_reason_to_look_for_another_master(
    code: int, remark: str | None, expected: bool
) -> None:
    assert may_have_new_master(Command(code=code, opaque=1, remark=remark)) is expected
