from __future__ import annotations

from escrowmq.client.core.retry import STORED, Step, after_failure, after_reply
from escrowmq.errors import (
    BrokerBusy,
    ConnectionLost,
    MessageRefused,
)


def test_steps_after_answers_and_failures() -> None:
    assert {0, 10, 11, 12} == STORED
    assert after_reply(0, retries_unsafe=True) is Step.DONE
    assert after_reply(10, retries_unsafe=False) is Step.DONE
    assert after_reply(10, retries_unsafe=True) is Step.AGAIN
    assert after_reply(2, retries_unsafe=False) is Step.AGAIN
    assert after_reply(13, retries_unsafe=False) is Step.GIVE_UP
    lost = ConnectionLost("gone")
    assert after_failure(lost, may_repeat=True) is Step.AGAIN
    assert after_failure(lost, may_repeat=False) is Step.GIVE_UP
    assert after_failure(BrokerBusy(), may_repeat=False) is Step.AGAIN, "it was not stored"
    assert after_failure(MessageRefused(), may_repeat=True) is Step.GIVE_UP
    assert after_failure(KeyError(), may_repeat=True) is Step.GIVE_UP
