"""Pull requests and their answers."""

import pytest

from escrowmq.base.command import Command
from escrowmq.client.core.fetched_messages import FetchedMessages
from escrowmq.client.core.message import ReceivedMessage
from escrowmq.client.core.pulling import (
    EmptyAnswerCounter,
    PullCursor,
    is_refusal,
    pull_fields,
    step_after_pull,
    with_subscription,
)
from escrowmq.client.core.pulling import (
    PullStep as Step,
)
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.subscription import Subscription
from escrowmq.errors import ConnectionLost, RemoteProtocolError, response_error

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
        (0, Step.TAKE), (19, Step.ADVANCE), (20, Step.ADVANCE), (21, Step.MOVE), (215, Step.REST),
        (16, Step.REFUSED), (17, Step.REFUSED), (23, Step.REFUSED), (26, Step.REFUSED),
        (1, Step.FAILED), (2, Step.FAILED), (24, Step.FAILED), (25, Step.FAILED),
        (99, Step.FAILED),
    ],
)  # fmt: skip
def test_each_answer_has_one_meaning(code: int, step: Step) -> None:
    assert step_after_pull(code) is step


def test_broker_that_says_at_once_that_nothing_is_there_is_asked_more_seldom() -> None:
    vain = EmptyAnswerCounter()
    assert [vain.count_and_pause_s(took_ms=0, wait_ms=20_000) for _ in range(14)] == [
        *[0.0] * 10, 0.2, 1.0, 3.0, 3.0,
    ]  # fmt: skip
    assert vain.count_and_pause_s(took_ms=50, wait_ms=20_000) == 0.0  # it has waited
    assert vain.count_and_pause_s(took_ms=0, wait_ms=20_000) == 0.0
    for _ in range(20):
        vain.count_and_pause_s(took_ms=0, wait_ms=20_000)
    vain.clear()
    assert vain.count_and_pause_s(took_ms=0, wait_ms=20_000) == 0.0


def test_who_asks_not_to_wait_is_answered_at_once_as_often_as_he_asks() -> None:
    vain = EmptyAnswerCounter()
    assert {vain.count_and_pause_s(took_ms=0, wait_ms=0) for _ in range(30)} == {0.0}


def cursor(at: int = 5) -> tuple[PullCursor[ReceivedMessage], FetchedMessages[ReceivedMessage]]:
    shelf: FetchedMessages[ReceivedMessage] = FetchedMessages(next_offset=at)
    return PullCursor(shelf, wait_ms=15_000), shelf


def reply(code: int, next_offset: int, *, broker_id: int = 0) -> Command:
    ext = {"nextBeginOffset": str(next_offset), "suggestWhichBrokerId": str(broker_id)}
    return Command(code=code, opaque=1, ext=ext)


def test_messages_are_put_before_the_shelf_goes_on() -> None:
    one, shelf = cursor()
    assert one.apply_reply(reply(0, 8, broker_id=1)) == (Step.TAKE, 8)
    assert (shelf.next_offset, one.broker_id) == (5, 1)
    shelf.add((), next_offset=8)
    assert one.pause_s(Step.TAKE, took_ms=0) == 0.0


def test_where_nothing_is_wanted_the_shelf_goes_on_by_itself() -> None:
    one, shelf = cursor()
    assert one.apply_reply(reply(20, 9)) == (Step.ADVANCE, 9)
    assert shelf.next_offset == 9
    pauses = []
    for _ in range(12):
        one.apply_reply(reply(19, 9))
        pauses.append(one.pause_s(Step.ADVANCE, took_ms=0))
    assert pauses == [*[0.0] * 10, 0.2, 1.0]


def test_a_move_forgets_what_is_here_and_many_of_them_are_slowed_down() -> None:
    one, shelf = cursor()
    pauses = []
    for at in (2, 3, 4, 5, 6, 7, 8):
        generation = shelf.generation
        assert one.apply_reply(reply(21, at)) == (Step.MOVE, at)
        assert (shelf.next_offset, shelf.generation) == (at, generation + 1)
        pauses.append(one.pause_s(Step.MOVE, took_ms=0))
    assert pauses == [0.0, 0.0, 0.0, 0.2, 1.0, 3.0, 3.0]
    one.apply_reply(reply(0, 9))
    one.apply_reply(reply(21, 1))
    assert one.pause_s(Step.MOVE, took_ms=0) == 0.0, "there was a message in between"


def test_failures_are_asked_again_later_and_refusals_later_still() -> None:
    one, shelf = cursor()
    assert [one.count_failure() for _ in range(4)] == [0.2, 1.0, 3.0, 3.0]
    assert one.apply_reply(reply(1, 99)) == (Step.FAILED, 5)
    assert one.pause_s(Step.FAILED, took_ms=0) == 3.0
    assert one.apply_reply(reply(16, 99)) == (Step.REFUSED, 5)
    assert one.pause_s(Step.REFUSED, took_ms=0) == 5.0
    assert shelf.next_offset == 5
    one.apply_reply(reply(19, 5, broker_id=1))
    assert one.count_failure() == 0.2, "an answer in between"
    assert one.broker_id == 1
    one.ask_master_next()
    assert one.broker_id == 0
    assert one.apply_reply(reply(215, 99)) == (Step.REST, 5)
    assert one.pause_s(Step.REST, took_ms=0) == 0.02


def test_an_offset_that_is_no_number_changes_nothing() -> None:
    one, shelf = cursor()
    with pytest.raises(RemoteProtocolError, match="nextBeginOffset"):
        one.apply_reply(Command(code=0, opaque=1, ext={"nextBeginOffset": "soon"}))
    assert shelf.next_offset == 5


def test_a_broker_that_moves_on_with_each_answer_is_asked_at_once() -> None:
    one, _ = cursor()
    for at in range(6, 30):
        one.apply_reply(reply(20, at))
        assert one.pause_s(Step.ADVANCE, took_ms=0) == 0.0


@pytest.mark.parametrize(
    ("code", "remark", "expected"),
    [
        (16, "no permission", True), (17, "no topic", True), (1, "", False), (2, "busy", False),
        (1, "org.apache.rocketmq.acl.common.AclException: no", True),
    ],
)  # fmt: skip
def test_a_refusal_is_what_only_people_can_change(
    code: int, remark: str, *, expected: bool
) -> None:
    assert is_refusal(response_error(code, remark, address="b:1")) is expected
    assert not is_refusal(ConnectionLost("gone"))
