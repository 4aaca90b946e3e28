"""An example that breaks each rule about sends, halves, ENDs and pulls, by the rule's name.

Whoever adds a rule adds its example here; `test_rules.py` wants one for each, and goes through all
of them on every way that a request is served.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from escrowmq.base.codes import Request, Response
from escrowmq.broker.reads.pull_rules import PullFlag
from escrowmq.delivery.topics import TopicConfig
from escrowmq.txn.state import Verdict
from tests.unit.broker.both import HALF, PLAIN, START_MS, Begun, Both, Side, end, frame, send
from tests.unit.broker.fast.test_fast_pulls import heartbeat, pull

Change = Callable[[Side], None]


def nothing(_: Side) -> None:
    """The request breaks the rule by itself."""


class Example(NamedTuple):
    """A request that breaks a rule at a broker that has served others on the fast path."""

    request: bytes
    change: Change = nothing
    """What breaks it: while all was as it was, the request would have been a plain one."""

    code: int = Response.SUCCESS
    """What is answered."""

    waited_ms: int = 0


def setting(**values: Any) -> Change:
    """Settings have other values."""

    def change(side: Side) -> None:
        for name, value in values.items():
            assert getattr(side.core.broker.settings, name) != value
            setattr(side.core.broker.settings, name, value)

    return change


def topic(**values: Any) -> Change:
    """The topic is another one."""

    def change(side: Side) -> None:
        topics = side.core.broker.topics
        config = topics.get("Orders")
        assert config is not None
        for name, value in values.items():
            assert getattr(config, name) != value
            setattr(config, name, value)
        topics.put(config, side.now_ms)

    return change


def each(*changes: Change) -> Change:
    def change(side: Side) -> None:
        for one in changes:
            one(side)

    return change


def another_topic(name: str) -> Change:
    return lambda side: side.core.broker.topics.put(TopicConfig(topic_name=name), side.now_ms)


def asked(code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Change:
    """An operator asks for something."""

    def change(side: Side) -> None:
        side.feed((2, frame(code, ext or {}, body)))
        side.heard.clear()

    return change


def half_with(**properties: str) -> bytes:
    changed = {**HALF, **properties}
    return send({name: value for name, value in changed.items() if value != "-"}, f="4")


LATE_HALF = setting(half_wait_max_ms=40)
SENDS = {
    "waited too long to be read": [
        Example(send(), code=Response.SYSTEM_BUSY, waited_ms=201),
        Example(half_with(), code=Response.SYSTEM_BUSY, waited_ms=51),
        Example(send(), waited_ms=51),
        Example(send(), waited_ms=200),
        Example(send(), setting(sheds_load=False), waited_ms=201),
        Example(half_with(), LATE_HALF, Response.SYSTEM_BUSY, waited_ms=41),
    ],
    "no sends are taken yet": [
        Example(send(), setting(accepts_sends_from_ms=START_MS + 60_000), Response.SYSTEM_ERROR)
    ],
    "an ordered topic": [
        Example(send(), each(topic(order=True), setting(permission=4)), Response.NO_PERMISSION),
        Example(send(), topic(order=True)),
    ],
    "a topic of the broker": [
        Example(send(topic="SELF_TEST_TOPIC"), code=Response.NO_PERMISSION),
        Example(
            send(topic="RMQ_SYS_TRANS_HALF_TOPIC"),
            another_topic("RMQ_SYS_TRANS_HALF_TOPIC"),
            Response.NO_PERMISSION,
        ),
    ],
    "no such topic": [
        Example(send(topic="Nowhere", c="none"), code=Response.TOPIC_NOT_EXIST),
        Example(
            send(c="none"),
            asked(Request.DELETE_TOPIC_IN_BROKER, {"topic": "Orders"}),
            Response.TOPIC_NOT_EXIST,
        ),
    ],
    "a queue beyond the topic": [
        Example(send(e="4"), code=Response.INVALID_PARAMETER),
        Example(
            send(e="2"),
            topic(read_queue_nums=2, write_queue_nums=1),
            Response.INVALID_PARAMETER,
        ),
    ],
    "a topic of retries": [
        Example(
            send(topic="%RETRY%none"),
            each(setting(creates_groups=False), another_topic("%RETRY%none")),
            Response.SUBSCRIPTION_GROUP_NOT_EXIST,
        )
    ],
    "a system topic": [Example(send(topic="rmq_sys_ours"), another_topic("rmq_sys_ours"))],
    "messages with many tags": [Example(send(), topic(topic_filter_type="MULTI_TAG"))],
    "a compacted topic": [
        Example(
            send(), topic(attributes={"cleanup.policy": "COMPACTION"}), Response.MESSAGE_ILLEGAL
        ),
        Example(send({**PLAIN, "KEYS": "k"}), topic(attributes={"cleanup.policy": "COMPACTION"})),
    ],
}

HALVES = {
    "transactions are rejected": [
        Example(half_with(), setting(rejects_transactions=True), Response.NO_PERMISSION)
    ],
    "no producer group": [
        Example(half_with(PGROUP="-"), code=Response.MESSAGE_ILLEGAL),
        Example(half_with(PGROUP=""), code=Response.MESSAGE_ILLEGAL),
    ],
    "an odd producer group": [
        Example(half_with(PGROUP="g" * 256), code=Response.MESSAGE_ILLEGAL),
        Example(half_with(PGROUP="a\tb"), code=Response.MESSAGE_ILLEGAL),
    ],
    "a delay from the commit on": [
        Example(half_with(DELAY="3", escrowDelay="true")),
        Example(
            half_with(TIMER_DELIVER_MS="9" * 15, escrowDelay="true"), code=Response.MESSAGE_ILLEGAL
        ),
    ],
    "too many pending": [Example(half_with(), setting(pending_max=3), Response.SYSTEM_BUSY)],
    "of an epoch": [
        Example(half_with(escrowEpoch="q/1", escrowToken="t")),
        Example(
            half_with(escrowEpoch="q/1", escrowToken="t", escrowTransaction="tx"),
            code=Response.SYSTEM_ERROR,
        ),
    ],
    "of several messages": [
        Example(half_with(escrowTransaction="tx")),
        Example(half_with(escrowTransaction="t" * 300), code=Response.MESSAGE_ILLEGAL),
    ],
}


class EndExample(NamedTuple):
    """An END that breaks a rule."""

    end: Callable[[Begun], bytes]
    properties: dict[str, str]
    """What makes its half special."""

    code: int | None
    """What is answered; None when nothing is."""

    before: Callable[[Both, Begun], object] = lambda _, __: None


def ended(verdict: str) -> Callable[[Both, Begun], object]:
    return lambda both, half: both.feed((1, end(half, verdict)))


def ended_in_part(verdict: Verdict) -> Callable[[Both, Begun], object]:
    def begin_end(both: Both, half: Begun) -> None:
        for side in both.sides:
            halves = side.core.transactions.engine.halves
            halves.schedule_rest([half.queue_offset], verdict, side.now_ms)

    return begin_end


def settled(half: Begun) -> bytes:
    return end(half, flag=0)


def moved(half: Begun, by: int) -> bytes:
    """Of the half's record, and another number."""
    return end(half._replace(queue_offset=half.queue_offset + by), flag=0)


ENDS = {
    "ended before": [
        EndExample(settled, {}, Response.SUCCESS, ended("8")),
        EndExample(settled, {}, Response.TRANSACTION_SHOULD_ROLLBACK, ended("12")),
    ],
    "ended in part": [
        EndExample(
            settled,
            {"escrowTransaction": "tx"},
            Response.TRANSACTION_STATE_UNKNOW,
            ended_in_part(Verdict.EXPIRE),
        ),
        EndExample(
            lambda half: end(half, flag=0, escrowCount="2"),
            {"escrowTransaction": "tx"},
            Response.SUCCESS,
            ended_in_part(Verdict.COMMIT),
        ),
    ],
    "of an epoch": [
        EndExample(settled, {"escrowEpoch": "q/1", "escrowToken": "t"}, Response.SYSTEM_ERROR)
    ],
    "past its time without checks": [
        EndExample(
            settled,
            {"CHECK_IMMUNITY_TIME_IN_SECONDS": "10"},
            Response.ILLEGAL_OPERATION,
            lambda both, _: both.pass_time(11_000),
        )
    ],
    "another number of messages": [
        EndExample(lambda half: end(half, flag=0, escrowCount="2"), {}, Response.SYSTEM_ERROR),
    ],
    # Of the half that is meant (txn/end_requests), and what no plain END says.
    "another group": [
        EndExample(lambda half: end(half, flag=0, producerGroup="b"), {}, Response.SYSTEM_ERROR),
    ],
    "another transaction": [
        EndExample(
            lambda half: end(half, flag=0, transactionId="0B" * 16, msgId="0C" * 16),
            {},
            Response.SYSTEM_ERROR,
        ),
    ],
    "another place": [
        EndExample(lambda half: moved(half, -1), {}, Response.SYSTEM_ERROR),
        EndExample(lambda half: moved(half, 1), {}, Response.SYSTEM_ERROR),
    ],
    "no verdict": [EndExample(lambda half: end(half, "0", flag=0), {}, None)],
    "the answer to a check": [
        EndExample(
            lambda half: end(half, flag=0, fromTransactionCheck="true"), {}, Response.SUCCESS
        ),
    ],
}

OF_GROUP = PullFlag.COMMIT_OFFSET


def beat(**changed: Any) -> Change:
    def change(side: Side) -> None:
        side.feed((2, heartbeat(**changed)))
        side.heard.clear()

    return change


def group(**values: Any) -> Change:
    def change(side: Side) -> None:
        groups = side.core.broker.groups
        config = groups.get_or_create("readers", side.now_ms)
        assert config is not None
        for name, value in values.items():
            assert getattr(config, name) != value
            setattr(config, name, value)
        groups.put(config, side.now_ms)

    return change


FORBIDDEN = {"group": "readers", "topic": "Orders", "readable": "false"}
UNREGISTERED = {"clientID": "one", "consumerGroup": "readers"}
PULLS = {
    "a broker that is not read": [
        Example(pull(0, flags=flags), setting(permission=2), Response.NO_PERMISSION)
        for flags in (5, OF_GROUP)
    ],
    "a lite pull where there are none": [
        Example(
            pull(0, code=Request.LITE_PULL_MESSAGE),
            setting(allows_lite_pull=False),
            Response.NO_PERMISSION,
        )
    ],
    "no such group": [
        Example(
            pull(0),
            each(
                setting(creates_groups=False),
                asked(Request.DELETE_SUBSCRIPTIONGROUP, {"groupName": "readers"}),
            ),
            Response.SUBSCRIPTION_GROUP_NOT_EXIST,
        )
    ],
    "a group that may not consume": [
        Example(pull(0), group(consume_enable=False), Response.NO_PERMISSION)
    ],
    "no such topic": [
        Example(
            pull(0),
            asked(Request.DELETE_TOPIC_IN_BROKER, {"topic": "Orders"}),
            Response.TOPIC_NOT_EXIST,
        )
    ],
    "a topic that is not read": [Example(pull(0), topic(perm=2), Response.NO_PERMISSION)],
    "a queue beyond the topic": [
        Example(pull(0), topic(read_queue_nums=0), Response.INVALID_PARAMETER),
        Example(pull(0, queue_id=4), code=Response.INVALID_PARAMETER),
        Example(pull(0, queue_id=-1), code=Response.INVALID_PARAMETER),
    ],
    "a filter by properties where there are none": [
        Example(pull(0, wanted="n > 1", expressionType="SQL92"), code=Response.SYSTEM_ERROR)
    ],
    "a group without members": [
        Example(
            pull(0),
            each(
                setting(rejects_unknown_pulls=True), asked(Request.UNREGISTER_CLIENT, UNREGISTERED)
            ),
            Response.SUBSCRIPTION_NOT_EXIST,
        )
    ],
    "nobody there": [
        Example(
            pull(0, flags=OF_GROUP),
            asked(Request.UNREGISTER_CLIENT, UNREGISTERED),
            Response.SUBSCRIPTION_NOT_EXIST,
        )
    ],
    "broadcasting that is not allowed": [
        Example(
            pull(0, flags=OF_GROUP),
            each(group(consume_broadcast_enable=False), beat(model="BROADCASTING")),
            Response.NO_PERMISSION,
        )
    ],
    "a topic that the group may not read": [
        Example(
            pull(0, flags=OF_GROUP),
            asked(Request.UPDATE_AND_GET_GROUP_FORBIDDEN, FORBIDDEN),
            Response.NO_PERMISSION,
        )
    ],
    "no subscription": [
        Example(
            pull(0, flags=OF_GROUP),
            beat(topic="Bills", version=8),
            Response.SUBSCRIPTION_NOT_EXIST,
        )
    ],
    "an older subscription": [
        Example(pull(0, flags=OF_GROUP, subVersion="9"), code=Response.SUBSCRIPTION_NOT_LATEST)
    ],
}
