"""What is remembered of a pull's judgement is forgotten once it would be another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from escrowmq.base.answer import Refusal
from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.broker.incoming_request import IncomingRequest
from escrowmq.broker.reads.pull_decisions import _REMEMBERED_MAX, PullDecision, PullJudge
from escrowmq.codec.headers import PullHeader
from tests.harness.exchange import Caller, Exchange

Change = Callable[[Exchange, Caller], object]


@pytest.fixture(name="judgements")
def watch(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each judgement was remembered; it has to be what is found anew."""
    judge, seen = PullJudge.decide, list[bool]()

    def judge_twice(
        self: PullJudge, asked: IncomingRequest[PullHeader], now_ms: int
    ) -> PullDecision | Refusal:
        anew_count = 0
        judge_anew = self._apply_rules

        def count(asked: IncomingRequest[PullHeader], now_ms: int) -> PullDecision | Refusal:
            nonlocal anew_count
            anew_count += 1
            return judge_anew(asked, now_ms)

        monkeypatch.setattr(self, "_apply_rules", count)
        found = judge(self, asked, now_ms)
        monkeypatch.setattr(self, "_apply_rules", judge_anew)
        assert found == judge_anew(asked, now_ms)
        seen.append(not anew_count)
        return found

    monkeypatch.setattr(PullJudge, "decide", judge_twice)
    return seen


def world() -> tuple[Exchange, Caller]:
    exchange = Exchange()
    exchange.create_topic("T", queues=4)
    exchange.connect("operator").ask(
        Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        body=b'{"groupName":"CG","consumeBroadcastEnable":false}',
    )
    client = exchange.connect()
    client.heartbeat(consumer="CG", topics={"T": "*"})
    client.send("T", b"one", TAGS="a")
    return exchange, client


def config(text: bytes) -> Change:
    return lambda exchange, _: exchange.connect("operator").ask(
        Request.UPDATE_BROKER_CONFIG, body=text
    )


def forbid(exchange: Exchange, _: Caller) -> None:
    wish = {"group": "CG", "topic": "T", "readable": "false"}
    exchange.connect("operator").ask(Request.UPDATE_AND_GET_GROUP_FORBIDDEN, wish)


def set_setting(name: str, value: object) -> Change:
    return lambda exchange, _: setattr(exchange.settings, name, value)


CHANGES: dict[str, Change] = {
    "topic without reading": lambda exchange, _: exchange.create_topic("T", queues=4, perm="2"),
    "narrower topic": lambda exchange, _: exchange.create_topic("T", queues=1),
    "deleted topic": lambda exchange, _: exchange.connect("operator").ask(
        Request.DELETE_TOPIC_IN_BROKER, {"topic": "T"}
    ),
    "deleted group": lambda exchange, _: exchange.connect("operator").ask(
        Request.DELETE_SUBSCRIPTIONGROUP, {"groupName": "CG"}
    ),
    "forbidden topic": forbid,
    "broker without reading": config(b"brokerPermission=2"),
    "no subscription any more": lambda _, client: client.heartbeat(
        consumer="CG", topics={"U": "*"}, sub_version=2
    ),
    "other tags": lambda _, client: client.heartbeat(
        consumer="CG", topics={"T": "b"}, sub_version=2
    ),
    "broadcasting": lambda _, client: client.heartbeat(
        consumer="CG", topics={"T": "*"}, model="BROADCASTING"
    ),
    "broadcasting, told with an older subscription": lambda _, client: client.heartbeat(
        consumer="CG", topics={"T": "*"}, model="BROADCASTING", sub_version=0
    ),
    "nobody there": lambda _, client: client.ask(
        Request.UNREGISTER_CLIENT, {"clientID": client.client_id, "consumerGroup": "CG"}
    ),
    "unknown groups are rejected": set_setting("rejects_unknown_pulls", value=True),
    "no lite pulls": set_setting("allows_lite_pull", value=False),
}


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("expression", [None, "*", "a || b"])
@pytest.mark.parametrize("code", [Request.PULL_MESSAGE, Request.LITE_PULL_MESSAGE])
def test_every_change_is_noticed(
    judgements: list[bool], what: str, expression: str | None, code: int
) -> None:
    exchange, client = world()
    for queue_id in (3, 3, 0, 3):
        pull(client, code, expression, queue_id)
    assert judgements == [False, True, True, True]
    CHANGES[what](exchange, client)
    for queue_id in (3, 0, 4, 3):
        pull(client, code, expression, queue_id)


def pull(client: Caller, code: int, expression: str | None, queue_id: int) -> Command:
    """Whatever the answer is: the judgements are compared."""
    ext: dict[str, Any] = {
        "consumerGroup": "CG", "topic": "T", "queueId": str(queue_id), "queueOffset": "0",
        "maxMsgNums": "32", "sysFlag": "0" if expression is None else "4", "commitOffset": "0",
        "suspendTimeoutMillis": "0", "subVersion": "1",
    }  # fmt: skip
    if expression is not None:
        ext["subscription"] = expression
    return client.ask(code, ext)


@pytest.mark.parametrize(
    ("model", "code"),
    [("BROADCASTING", Response.NO_PERMISSION), ("CLUSTERING", 0), ("", 0), ("BROAD", 0)],
)
def test_a_group_may_be_kept_from_broadcasting_and_from_nothing_else(model: str, code: int) -> None:
    _, client = world()
    client.heartbeat(consumer="CG", topics={"T": "*"}, model=model)
    assert pull(client, Request.PULL_MESSAGE, None, 0).code == code


def test_what_is_large_is_judged_each_time(judgements: list[bool]) -> None:
    exchange, client = world()
    exchange.settings.has_property_filter = True
    for expression in ("a" * 257, "||".join(f"t{number}" for number in range(17))):
        for _ in range(2):
            client.pull("T", expression=expression)
    for _ in range(2):
        client.pull("T", expression="n > 1", fields={"expressionType": "SQL92"})
        fields = {"expressionType": "x" * 257, "sysFlag": "0"}  # the group's own expression counts
        assert client.pull("T", group="CG", fields=fields).code == Response.SUCCESS
    assert not any(judgements)
    judge = exchange.core.assembly.pulls.judge
    for number in range(_REMEMBERED_MAX + 100):
        client.pull("T", expression=f"t{number}")
        assert len(judge._remembered) <= _REMEMBERED_MAX


@pytest.mark.parametrize("expression", ["a" * 256, "||".join(f"t{number}" for number in range(16))])
def test_what_is_just_small_enough_is_remembered(judgements: list[bool], expression: str) -> None:
    _, client = world()
    for _ in range(2):
        client.pull("T", expression=expression)
    assert judgements == [False, True]


def test_a_kind_of_expression_that_is_just_short_enough_is_remembered(
    judgements: list[bool],
) -> None:
    exchange, client = world()
    exchange.settings.has_property_filter = True
    fields = {"expressionType": "x" * 256, "sysFlag": "0"}
    for _ in range(2):
        assert client.pull("T", group="CG", fields=fields).code == Response.SUCCESS
    assert judgements == [False, True]
