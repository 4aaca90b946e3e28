from __future__ import annotations

from escrowmq.client.core.send_retry import STORED, Pauses, RetryStep, after_failure, after_reply
from escrowmq.errors import (
    BrokerBusy,
    ConnectionLost,
    MessageRefused,
)


def test_steps_after_answers_and_failures() -> None:
    assert {0, 10, 11, 12} == STORED
    assert after_reply(0, retries_unsafe=True) is RetryStep.DONE
    assert after_reply(10, retries_unsafe=False) is RetryStep.DONE
    assert after_reply(10, retries_unsafe=True) is RetryStep.AGAIN
    assert after_reply(2, retries_unsafe=False) is RetryStep.AGAIN
    assert after_reply(13, retries_unsafe=False) is RetryStep.GIVE_UP
    lost = ConnectionLost("gone")
    assert after_failure(lost, may_repeat=True) is RetryStep.AGAIN
    assert after_failure(lost, may_repeat=False) is RetryStep.GIVE_UP
    assert after_failure(BrokerBusy(), may_repeat=False) is RetryStep.AGAIN, "it was not stored"
    assert after_failure(MessageRefused(), may_repeat=True) is RetryStep.GIVE_UP
    assert after_failure(KeyError(), may_repeat=True) is RetryStep.GIVE_UP


def test_pauses_grow_to_their_bound_and_are_none_where_no_time_is_left() -> None:
    pauses = Pauses(most_s=0.1)
    assert [pauses.next_s(9.0) for _ in range(5)] == [0.02, 0.04, 0.08, 0.1, 0.1]
    assert pauses.next_s(0.1) is None
    assert pauses.next_s(0.11) == 0.1
