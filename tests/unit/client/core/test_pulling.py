"""Pull requests and their answers."""

import pytest

from escrowmq.client.core.pulling import InVain, Step, after_pull, pull_fields, with_subscription
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.subscription import Subscription

QUEUE = MessageQueue("T", "b", 3)


def test_a_pull_names_all_that_a_broker_needs() -> None:
    fields = pull_fields(
        QUEUE, Subscription(topic="T", version=7), group="g", queue_offset=5, commit_offset=4,
        count_max=32, suspend_ms=15_000,
    )  # fmt: skip
    assert fields == {
        "consumerGroup": "g", "topic": "T", "queueId": "3", "queueOffset": "5",
        "maxMsgNums": "32", "sysFlag": "3", "commitOffset": "4", "suspendTimeoutMillis": "15000",
        "subVersion": "7", "expressionType": "TAG", "bname": "b",
    }  # fmt: skip


def test_nothing_is_committed_or_waited_for_when_not_told() -> None:
    wanted = Subscription(topic="T", expression="a || b")
    fields = pull_fields(
        QUEUE, wanted, group="g", queue_offset=0, commit_offset=0, count_max=1, suspend_ms=0
    )
    assert fields["sysFlag"] == "0"
    whole = with_subscription(fields, wanted)
    assert (whole["sysFlag"], whole["subscription"]) == ("4", "a || b")


@pytest.mark.parametrize(
    ("code", "step"),
    [
        (0, Step.TAKE), (19, Step.GO_ON), (20, Step.GO_ON), (21, Step.MOVE), (215, Step.REST),
        (16, Step.REFUSED), (17, Step.REFUSED), (23, Step.REFUSED), (26, Step.REFUSED),
        (1, Step.FAILED), (2, Step.FAILED), (24, Step.FAILED), (25, Step.FAILED),
        (99, Step.FAILED),
    ],
)  # fmt: skip
def test_each_answer_has_one_meaning(code: int, step: Step) -> None:
    assert after_pull(code) is step


def test_broker_that_says_at_once_that_nothing_is_there_is_asked_more_seldom() -> None:
    vain = InVain()
    assert [vain.pause_s(took_ms=0, wait_ms=20_000) for _ in range(14)] == [
        *[0.0] * 10, 0.2, 1.0, 3.0, 3.0,
    ]  # fmt: skip
    assert vain.pause_s(took_ms=50, wait_ms=20_000) == 0.0  # it has waited
    assert vain.pause_s(took_ms=0, wait_ms=20_000) == 0.0
    for _ in range(20):
        vain.pause_s(took_ms=0, wait_ms=20_000)
    vain.clear()
    assert vain.pause_s(took_ms=0, wait_ms=20_000) == 0.0


def test_who_asks_not_to_wait_is_answered_at_once_as_often_as_he_asks() -> None:
    vain = InVain()
    assert {vain.pause_s(took_ms=0, wait_ms=0) for _ in range(30)} == {0.0}
