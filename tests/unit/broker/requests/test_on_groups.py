from __future__ import annotations

import json
from typing import Any

import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from tests.harness.exchange import START_MS, Caller, Exchange


@pytest.fixture(name="exchange")
def make_exchange() -> Exchange:
    return Exchange()


@pytest.fixture(name="operator")
def make_operator(exchange: Exchange) -> Caller:
    return exchange.connect()


DEFAULTS = {
    "attributes": {}, "brokerId": 0, "consumeBroadcastEnable": True, "consumeEnable": True,
    "consumeFromMinEnable": True, "consumeMessageOrderly": False, "consumeTimeoutMinute": 15,
    "groupName": "G", "groupRetryPolicy": {"type": "CUSTOMIZED"}, "groupSysFlag": 0,
    "notifyConsumerIdsChangedEnable": True, "retryMaxTimes": 16, "retryQueueNums": 1,
    "whichBrokerWhenConsumeSlowly": 1,
}  # fmt: skip


def put_group(operator: Caller, **config: Any) -> Command:
    body = json.dumps({"groupName": "G", **config}).encode()
    return operator.ask(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)


def group_of(operator: Caller, name: str = "G") -> dict[str, Any]:
    reply = operator.ask(Request.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": name})
    assert reply.code == 0, reply.remark
    found: dict[str, Any] = json.loads(reply.body)
    return found


def test_asking_for_a_group_creates_it_with_the_defaults(operator: Caller) -> None:
    assert group_of(operator) == DEFAULTS


def test_asking_for_a_group_creates_nothing_where_groups_are_not_created() -> None:
    operator = Exchange(BrokerSettings(creates_groups=False)).connect()
    reply = operator.ask(Request.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "G"})
    assert (reply.code, reply.remark) == (26, "No group in this broker")


def test_group_is_created_and_changed(operator: Caller) -> None:
    reply = put_group(operator, retryMaxTimes=3)
    assert (reply.code, reply.remark) == (0, None)
    assert group_of(operator) == {**DEFAULTS, "retryMaxTimes": 3}
    put_group(operator, consumeEnable=False)
    assert group_of(operator) == {**DEFAULTS, "consumeEnable": False}


@pytest.mark.parametrize(
    "wrong", [{"retryQueueNums": -1}, {"retryQueueNums": 10**6}, {"retryMaxTimes": 10**11}]
)
def test_a_group_with_an_impossible_number_is_refused(
    operator: Caller, wrong: dict[str, int]
) -> None:
    reply = put_group(operator, **wrong)
    assert reply.code != 0
    (name,) = wrong
    assert f"{name} is {wrong[name]}" in (reply.remark or "")
    assert group_of(operator) == DEFAULTS


def test_several_groups_are_created(operator: Caller) -> None:
    body = json.dumps({"groupConfigList": [{"groupName": "A"}, {"groupName": "B"}]}).encode()
    assert operator.ask(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=body).code == 0
    found = json.loads(operator.ask(Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body)
    assert {"A", "B", "CID_RMQ_SYS_TRANS"} <= set(found["subscriptionGroupTable"])
    assert found["forbiddenTable"] == {}


def test_group_that_cannot_be_read_is_answered_with_1(operator: Caller) -> None:
    for body in (b"", b"x", b"[]", b'{"retryMaxTimes":"many"}'):
        reply = operator.ask(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        assert reply.code == 1


def test_deleted_group_is_gone_and_its_offsets_when_that_is_wished(
    exchange: Exchange, operator: Caller
) -> None:
    exchange.create_topic("T")
    offset = {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "5"}
    ask = {**offset, "setZeroIfNotFound": "false"}
    for clean, code in (("false", 0), ("true", 22)):
        operator.ask(Request.UPDATE_CONSUMER_OFFSET, offset)
        operator.send("%RETRY%G")
        ext = {"groupName": "G", "cleanOffset": clean}
        assert operator.ask(Request.DELETE_SUBSCRIPTIONGROUP, ext).code == 0
        assert exchange.core.broker.groups.find("G") is None
        assert exchange.core.broker.topics.get("%RETRY%G") is None
        assert operator.ask(Request.QUERY_CONSUMER_OFFSET, ask).code == code


def test_group_is_kept_from_a_topic_and_let_in_again(operator: Caller) -> None:
    def ask(**more: str) -> dict[str, Any]:
        ext = {"group": "G", "topic": "T", **more}
        reply = operator.ask(Request.UPDATE_AND_GET_GROUP_FORBIDDEN, ext)
        assert (reply.code, reply.remark) == (0, "")
        found: dict[str, Any] = json.loads(reply.body)
        return found

    assert ask() == {"group": "G", "readable": True, "topic": "T"}
    operator.exchange.core.broker.groups.get_or_create("G", START_MS)
    operator.exchange.create_topic("T")
    assert not ask(readable="false")["readable"]
    assert not ask()["readable"]
    assert ask(readable="TRUE")["readable"]


@pytest.mark.parametrize("is_as_peer", [False, True])
def test_bans_of_what_is_not_there_are_not_kept(is_as_peer: bool) -> None:
    exchange = Exchange(BrokerSettings(places_as_rocketmq=is_as_peer))
    exchange.create_topic("T")
    exchange.core.broker.groups.get_or_create("G", START_MS)
    for group, topic, code in (("nobody", "T", 26), ("G", "nowhere", 17)):
        ext = {"group": group, "topic": topic, "readable": "false"}
        reply = exchange.connect().ask(Request.UPDATE_AND_GET_GROUP_FORBIDDEN, ext)
        assert reply.code == (0 if is_as_peer else code)
    assert bool(exchange.core.broker.groups.forbidden) is is_as_peer


def test_forgetting_a_group_forgets_no_group_whose_name_ends_alike(
    exchange: Exchange, operator: Caller
) -> None:
    offsets = exchange.core.broker.offsets
    for group in ("b", "a@b"):
        offsets.commit(group, "T", 0, 1, exchange.now_ms)
    assert sorted(offsets.groups_of("T")) == ["a@b", "b"]
    offsets.forget_group("b")
    assert (offsets.get("b", "T", 0), offsets.get("a@b", "T", 0)) == (-1, 1)
    assert offsets.topics_of("a@b") == ["T"]


@pytest.mark.parametrize(
    "bad",
    [{"groupName": "a b"}, {"groupName": "B", "retryQueueNums": -1},
     {"groupName": "B", "attributes": {"-no.such": ""}}],
)  # fmt: skip
def test_of_several_groups_none_is_made_or_changed_if_one_is_refused(
    operator: Caller, bad: dict[str, Any]
) -> None:
    groups = [{"groupName": "A", "retryMaxTimes": 3}, bad]
    body = json.dumps({"groupConfigList": groups}).encode()
    assert operator.ask(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=body).code != 0
    table = json.loads(operator.ask(Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body)
    assert "A" not in table["subscriptionGroupTable"]
