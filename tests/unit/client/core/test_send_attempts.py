"""The attempts of a message, without a network and without a clock."""

from __future__ import annotations

import random

import pytest

from escrowmq.base.command import Command
from escrowmq.client.core.queue_choice import QueueChooser
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.send_attempts import SendAnswer, SendAttempts, SendRequest, SendRules
from escrowmq.client.core.sending import OutgoingMessage
from escrowmq.errors import (
    SLAVE_REMARK,
    SWITCHING_REMARK,
    BrokerBusy,
    ConnectFailed,
    ConnectionLost,
    EscrowMQError,
    MessageRefused,
    NoNameServer,
    NotMaster,
    RequestTimeout,
    RouteMissing,
    SendFailed,
    ServiceNotAvailable,
)

QUEUES = [MessageQueue("T", name, number) for name in ("a", "b") for number in (0, 1)]
OUT = OutgoingMessage(topic="T", body=b"x", properties="", unique_key="K", born_ms=0)


class Try:
    """One message's attempts from second 100 on, and whoever makes them."""

    def __init__(
        self,
        *,
        queue: MessageQueue | None = None,
        order_key: str = "",
        may_repeat: bool = True,
        retries: int = 2,
        retries_unsafe: bool = False,
    ) -> None:
        self.now = 100.0
        self.has_names = True
        self.names = {"a", "b"}
        self.chooser = QueueChooser(random.Random(1))
        self.attempts = SendAttempts(
            SendRequest(
                message=OUT,
                timeout_ms=3_000,
                queue=queue,
                order_key=order_key,
                may_repeat=may_repeat,
            ),
            SendRules(group="PG", retries=retries, retries_unsafe=retries_unsafe),
            started=self.now,
        )
        self.queue = QUEUES[0]

    def aim(self) -> MessageQueue:
        self.queue = self.attempts.choose_target(QUEUES, self.chooser)
        self.attempts.mark_sent()
        return self.queue

    def answered(self, code: int, remark: str = "") -> SendAnswer | float:
        reply = Command(code=code, opaque=1, remark=remark)
        return self.report(SendAnswer(reply, self.queue, f"{self.queue.broker_name}:1"))

    def report(self, what: SendAnswer | EscrowMQError) -> SendAnswer | float:
        return self.attempts.report_attempt(
            what, now=self.now, names=lambda: self.names, has_names=self.has_names
        )


def test_an_attempt_after_a_failed_one_goes_to_another_broker() -> None:
    one = Try(retries=5)
    seen = []
    for _ in range(4):
        seen.append(one.aim().broker_name)
        assert one.report(ConnectionLost("gone")) == 0.0
    assert seen in (["a", "b", "a", "b"], ["b", "a", "b", "a"])


def test_a_stored_answer_counts_and_a_refusal_is_tried_as_often_as_the_rules_say() -> None:
    one = Try()
    one.aim()
    assert one.answered(2) == 0.0
    one.aim()
    assert one.answered(1) == 0.0
    one.aim()
    sent = one.answered(0)
    assert isinstance(sent, SendAnswer)
    assert sent.queue == one.queue
    two = Try()
    for _ in range(2):
        two.aim()
        assert two.answered(2, "planted") == 0.0
    two.aim()
    with pytest.raises(BrokerBusy, match="planted") as busy:
        two.answered(2, "planted")
    assert busy.value.__notes__ == ["3 attempts were made"]


def test_refusals_that_differ_are_told_one_by_one_with_their_brokers() -> None:
    one = Try()
    names = [one.aim().broker_name]
    one.answered(2, "busy")
    names.append(one.aim().broker_name)
    one.report(ConnectionLost("gone"))
    names.append(one.aim().broker_name)
    with pytest.raises(SendFailed, match=r"3 attempts: .*busy.*gone") as failed:
        one.answered(1, "fault")
    assert [name for name, _ in failed.value.attempts] == names


def test_a_broker_that_is_not_the_master_costs_no_attempt_and_its_successor_is_waited_for() -> None:
    """Nothing was stored, and another member of its group is becoming the master."""
    one = Try(retries=0)
    one.names = {"a"}
    one.queue = one.attempts.record_target(QUEUES[0])
    remark = f"service not available now: {SLAVE_REMARK}, which stores what its master does"
    assert one.answered(14, remark) == 0.02
    assert one.answered(14, f"{SWITCHING_REMARK} b; try again soon") == 0.04
    one.now = 102.99
    with pytest.raises(NotMaster):
        one.answered(14, remark)
    two = Try(retries=0)
    two.aim()
    with pytest.raises(ServiceNotAvailable) as full:
        two.answered(14, "the disk is full")
    assert type(full.value) is ServiceNotAvailable


def test_what_another_attempt_would_not_change_is_raised_at_once() -> None:
    one = Try()
    one.aim()
    with pytest.raises(MessageRefused):
        one.answered(13)
    two = Try()
    missing = RouteMissing("nobody knows it")
    with pytest.raises(RouteMissing):
        two.report(missing)


@pytest.mark.parametrize("how", ["queue", "key"])
def test_a_message_bound_to_a_queue_is_tried_once_and_goes_nowhere_else(how: str) -> None:
    one = Try(queue=QUEUES[3]) if how == "queue" else Try(order_key="k")
    first = one.aim()
    assert one.report(ConnectFailed("nobody there")) == 0.02, "nothing was sent: that is no attempt"
    assert one.aim() == first
    with pytest.raises(SendFailed, match="gone"):
        one.report(ConnectionLost("gone"))


def test_what_may_be_stored_already_is_not_repeated_where_that_does_harm() -> None:
    one = Try(may_repeat=False)
    one.aim()
    with pytest.raises(SendFailed, match="gone"):
        one.report(ConnectionLost("gone"))
    two = Try(may_repeat=False)
    two.aim()
    assert two.answered(2) == 0.0, "a refusal says that it was not stored"


def test_unsafe_storage_is_repeated_when_asked_for_and_counts_when_nothing_better_comes() -> None:
    plain = Try()
    plain.aim()
    assert isinstance(plain.answered(10), SendAnswer)
    for end in (ConnectionLost("gone"), MessageRefused("no")):
        one = Try(retries_unsafe=True)
        one.aim()
        assert one.answered(10) == 0.0
        one.aim()
        then = one.report(end)
        if isinstance(end, ConnectionLost):
            one.aim()
            then = one.report(end)
        assert isinstance(then, SendAnswer)
        assert then.reply.code == 10
    late = Try(retries_unsafe=True)
    late.aim()
    assert late.answered(10) == 0.0
    late.now += 3
    late.aim()
    then = late.report(RequestTimeout("no answer"))
    assert isinstance(then, SendAnswer), "it is stored, whatever became of the second attempt"


def test_brokers_that_are_away_cost_time_and_no_attempts() -> None:
    one = Try(retries=0)
    pauses: list[float] = []

    def go_on() -> None:
        while True:
            one.aim()
            pause = one.report(ConnectFailed("nobody there"))
            assert isinstance(pause, float)
            pauses.append(pause)
            one.now += pause

    with pytest.raises(SendFailed) as failed:
        go_on()
    assert sorted(name for name, _ in failed.value.attempts) == ["a", "b"], "each is told once"
    assert pauses[:4] == [0.0, 0.02, 0.0, 0.04], "the other one at once, then a pause"
    assert max(pauses) == 0.25
    assert 102.7 < one.now <= 103.0


def test_a_name_server_is_waited_for_only_where_one_has_answered_before() -> None:
    one = Try()
    one.names = set()
    assert one.report(NoNameServer("nobody")) == 0.02
    two = Try(retries=0)
    two.has_names = False
    with pytest.raises(NoNameServer):
        two.report(NoNameServer("nobody"))


def test_the_time_of_a_message_is_that_of_all_attempts_together() -> None:
    one = Try()
    one.aim()
    assert one.attempts.left_s(100.5) == 2.5
    one.now = 102.0
    assert one.report(ConnectionLost("gone")) == 0.0
    assert one.attempts.left_s(one.now) == 1.0
    with pytest.raises(RequestTimeout, match=r"within 3000 ms; 1 attempt: .*: gone; it may be"):
        one.attempts.left_s(103.0)
    one.aim()
    one.now = 103.0
    with pytest.raises(RequestTimeout, match=r"2 attempts: .*: gone; .*: late; it may be stored"):
        one.report(RequestTimeout("late"))


def test_time_that_is_over_before_a_broker_was_asked_is_said_once() -> None:
    """The text stood in itself, as what an attempt of no broker had said."""
    one = Try()
    one.now = 103.0
    with pytest.raises(RequestTimeout) as late:
        one.report(one.attempts.timeout_error())
    assert str(late.value) == (
        "the message to 'T' was not confirmed within 3000 ms; no attempt came to an end; it was "
        "not sent; try again, or allow more time (timeout_ms)"
    )


def test_time_that_is_over_while_a_broker_is_dialled_is_no_attempt_of_its_own() -> None:
    """It was told as one, and its text repeated what the others had said."""
    one = Try()
    one.aim()
    one.report(ConnectionLost("gone"))
    one.report(ConnectFailed("nobody there"))
    one.now = 103.0
    with pytest.raises(SendFailed) as failed:
        one.report(one.attempts.timeout_error())
    assert [str(error) for _, error in failed.value.attempts] == ["gone", "nobody there"]
    assert str(failed.value).endswith(
        "it may be stored: send it again only if a duplicate does no harm"
    )


def test_a_send_that_surely_was_not_stored_does_not_say_that_it_may_be() -> None:
    one = Try()
    one.now = 102.9999
    one.aim()
    one.report(ConnectFailed("nobody there"))
    one.aim()
    with pytest.raises(SendFailed, match=r"could not be sent; 2 attempts: .*nobody there$"):
        one.report(ConnectFailed("nobody there"))


def test_a_queue_overrides_a_key_and_a_keys_queue_stays_when_the_route_changes() -> None:
    assert Try(queue=QUEUES[3], order_key="k").aim() == QUEUES[3]
    one = Try(order_key="k")
    first = one.aim()
    others = [queue for queue in QUEUES if queue != first]
    assert one.attempts.choose_target(others, one.chooser) == first


def test_unsafe_storage_counts_where_no_attempt_or_no_time_is_left() -> None:
    last = Try(retries=0, retries_unsafe=True)
    last.aim()
    assert isinstance(last.answered(10), SendAnswer)
    late = Try(retries=5, retries_unsafe=True)
    late.aim()
    late.now = 103.0
    assert isinstance(late.answered(10), SendAnswer)


def test_a_broker_that_refuses_twice_in_a_row_is_waited_for() -> None:
    one = Try()
    one.attempts.record_target(QUEUES[0])
    assert one.report(ConnectFailed("nobody there")) == 0.0
    one.attempts.record_target(QUEUES[0])
    assert one.report(ConnectFailed("nobody there")) == 0.02


def test_one_refusal_is_raised_without_a_note() -> None:
    one = Try()
    one.aim()
    with pytest.raises(MessageRefused) as refused:
        one.answered(13)
    assert not hasattr(refused.value, "__notes__")


def test_time_that_is_over_without_a_broker_says_why_there_was_none() -> None:
    one = Try()
    assert one.report(NoNameServer("nobody knows")) == 0.0
    assert "nobody knows; it was not sent" in str(one.attempts.timeout_error())


@pytest.mark.parametrize("order", [(0, 2), (2, 0)])
def test_each_broker_that_was_not_reached_is_told(order: tuple[int, int]) -> None:
    one = Try()
    for number in order:
        one.attempts.record_target(QUEUES[number])
        one.report(ConnectFailed("nobody there"))
    with pytest.raises(SendFailed) as failed:
        one.report(one.attempts.timeout_error())
    assert [name for name, _ in failed.value.attempts] == [QUEUES[n].broker_name for n in order]
