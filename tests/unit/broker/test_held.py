"""What waited is judged anew when it is answered: pulls, pops and questions about pops."""

from __future__ import annotations

import json
from typing import Any

import pytest

from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.base.fixed_limits import RELEASED_AT_ONCE_MAX, RELEASED_SIZE_MAX
from escrowmq.base.store_settings import StoreSettings
from escrowmq.errors import StorageError
from tests.harness.exchange import Caller, Exchange, Pending

HOLD_MS = 10_000


@pytest.fixture(name="exchange")
def make_exchange() -> Exchange:
    exchange = Exchange()
    exchange.create_topic("T")
    return exchange


@pytest.fixture(name="client")
def make_client(exchange: Exchange) -> Caller:
    return exchange.connect("c1")


def pop_fields(exchange: Exchange, **more: str) -> dict[str, str]:
    return {
        "consumerGroup": "CG",
        "topic": "T",
        "queueId": "-1",
        "maxMsgNums": "32",
        "invisibleTime": "10000",
        "pollTime": str(HOLD_MS),
        "bornTime": str(exchange.now_ms),
        "initMode": "0",
        "order": "false",
    } | more


def begin(exchange: Exchange, client: Caller, kind: str) -> Pending:
    if kind == "pull":
        pending = client.begin_pull("T", hold_ms=HOLD_MS)
    else:
        code = {"pop": Request.POP_MESSAGE, "notify": Request.NOTIFICATION}[kind]
        pending = client.begin(code, pop_fields(exchange))
    assert not pending
    return pending


def change_group(exchange: Exchange, **members: object) -> None:
    body = json.dumps({"groupName": "CG", **members}).encode()
    operator = exchange.connect("operator")
    assert operator.ask(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body).code == 0
    operator.leave()


def delete_topic(exchange: Exchange) -> None:
    operator = exchange.connect("operator")
    assert operator.ask(Request.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 0


def take_group_away(exchange: Exchange) -> None:
    change_group(exchange, consumeEnable=False)


def make_unreadable(exchange: Exchange) -> None:
    exchange.create_topic("T", perm="2")


def close_broker(exchange: Exchange) -> None:
    operator = exchange.connect("operator")
    assert operator.ask(Request.UPDATE_BROKER_CONFIG, body=b"brokerPermission=2").code == 0


CHANGES: dict[str, tuple[Any, int]] = {
    "topic deleted": (delete_topic, 17),
    "group may not consume": (take_group_away, 16),
    "topic not readable": (make_unreadable, 16),
    "broker not readable": (close_broker, 16),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", ["pull", "pop", "notify"])
def test_who_may_not_read_any_more_is_told_so_when_the_time_is_over(
    exchange: Exchange, client: Caller, kind: str, change: str
) -> None:
    pending = begin(exchange, client, kind)
    act, code = CHANGES[change]
    act(exchange)
    exchange.advance(HOLD_MS)
    assert pending.now.code == code, pending.now.remark


@pytest.mark.parametrize("change", ["group may not consume", "topic not readable"])
@pytest.mark.parametrize("kind", ["pull", "pop", "notify"])
def test_who_may_not_read_any_more_is_not_given_what_arrives(
    exchange: Exchange, client: Caller, kind: str, change: str
) -> None:
    pending = begin(exchange, client, kind)
    act, code = CHANGES[change]
    act(exchange)
    exchange.connect("producer").send("T")
    assert (pending.now.code, pending.now.body) == (code, b"")


@pytest.mark.parametrize("kind", ["pull", "pop", "notify"])
def test_who_may_still_read_is_served(exchange: Exchange, client: Caller, kind: str) -> None:
    pending = begin(exchange, client, kind)
    change_group(exchange, retryMaxTimes=3)
    exchange.connect("producer").send("T")
    assert pending.now.code == 0
    assert (pending.now.ext or {}).get("hasMsg", "true") == "true"


def held_by_heartbeat(client: Caller, **options: Any) -> Pending:
    pending = client.begin_pull("T", hold_ms=HOLD_MS, expression=None, **options)
    assert not pending
    return pending


def test_pull_follows_a_subscription_that_changed_meanwhile(
    exchange: Exchange, client: Caller
) -> None:
    client.heartbeat(consumer="CG", topics={"T": "a"}, sub_version=1)
    pending = held_by_heartbeat(client)
    client.heartbeat(consumer="CG", topics={"T": "b"}, sub_version=2)
    exchange.connect("producer").send("T", TAGS="a")
    assert pending.now.code == 20  # look again at once: what came is not wanted any more


def test_pull_of_a_topic_that_is_not_subscribed_any_more_is_refused(
    exchange: Exchange, client: Caller
) -> None:
    client.heartbeat(consumer="CG", topics={"T": "*"}, sub_version=1)
    pending = held_by_heartbeat(client)
    client.heartbeat(consumer="CG", topics={"U": "*"}, sub_version=2)
    exchange.connect("producer").send("T")
    assert (pending.now.code, pending.now.body) == (24, b"")


def test_forbidden_group_is_told_the_kind_of_refusal(exchange: Exchange, client: Caller) -> None:
    client.heartbeat(consumer="CG", topics={"T": "*"})
    pending = held_by_heartbeat(client)
    fields = {"group": "CG", "topic": "T", "readable": "false"}
    assert client.ask(Request.UPDATE_AND_GET_GROUP_FORBIDDEN, fields).code == 0
    exchange.connect("producer").send("T")
    assert pending.now.code == 16
    assert (pending.now.ext or {})["forbiddenType"] == "5"


def test_offset_is_committed_once_by_a_pull_that_waits(exchange: Exchange, client: Caller) -> None:
    client.begin_pull("T", hold_ms=HOLD_MS, fields={"sysFlag": "7", "commitOffset": "1"})
    exchange.core.broker.offsets.commit("CG", "T", 0, 5, exchange.now_ms)
    exchange.connect("producer").send("T")
    assert exchange.core.broker.offsets.get("CG", "T", 0) == 5


# -- who pops is seen ----------------------------------------------------------------------------


def view(caller: Caller, code: int, **ext: str) -> Command:
    return caller.ask(code, ext)


def seen(caller: Caller) -> tuple[int, list[str]]:
    """What 203 answers for the group."""
    reply = view(caller, Request.GET_CONSUMER_CONNECTION_LIST, consumerGroup="CG")
    if reply.code:
        return reply.code, []
    body = json.loads(reply.body)
    assert (body["consumeType"], body["messageModel"]) == ("CONSUME_POP", "CLUSTERING")
    return 0, [one["clientAddr"] for one in body["connectionSet"]]


def test_group_that_only_pops_is_shown(exchange: Exchange, client: Caller) -> None:
    operator = exchange.connect("operator")
    assert seen(operator) == (206, [])
    begin(exchange, client, "pop")
    assert seen(operator) == (0, [f"10.0.0.9:{40_000 + client.id}"])
    for topic in ("T", "%RETRY%CG_T"):
        reply = view(operator, Request.QUERY_TOPIC_CONSUME_BY_WHO, topic=topic)
        assert json.loads(reply.body)["groupList"] == ["CG"]


def test_subscription_of_a_pop_is_shown(exchange: Exchange, client: Caller) -> None:
    client.ask(Request.POP_MESSAGE, pop_fields(exchange, pollTime="0", exp="b || a", expType="TAG"))
    reply = view(client, Request.QUERY_SUBSCRIPTION_BY_CONSUMER, group="CG", topic="T")
    assert json.loads(reply.body)["subscriptionData"] == {
        "classFilterMode": False,
        "codeSet": [97, 98],
        "expressionType": "TAG",
        "subString": "b || a",
        "subVersion": exchange.now_ms,
        "tagsSet": ["a", "b"],
        "topic": "T",
    }


def test_heartbeats_name_the_client_that_pops(exchange: Exchange, client: Caller) -> None:
    client.heartbeat(producer="PG")
    begin(exchange, client, "pop")
    reply = view(client, Request.GET_CONSUMER_CONNECTION_LIST, consumerGroup="CG")
    assert [one["clientId"] for one in json.loads(reply.body)["connectionSet"]] == ["c1"]


def test_group_with_heartbeats_is_shown_by_them(exchange: Exchange, client: Caller) -> None:
    client.heartbeat(consumer="CG", topics={"T": "*"})
    begin(exchange, exchange.connect("c2"), "pop")
    reply = view(client, Request.GET_CONSUMER_CONNECTION_LIST, consumerGroup="CG")
    body = json.loads(reply.body)
    assert body["consumeType"] == "CONSUME_PASSIVELY"
    assert [one["clientId"] for one in body["connectionSet"]] == ["c1"]


def test_connection_that_is_gone_is_not_shown(exchange: Exchange, client: Caller) -> None:
    operator = exchange.connect("operator")
    begin(exchange, client, "pop")
    client.leave()
    assert seen(operator) == (0, [])
    exchange.advance(700_000)
    assert seen(operator) == (206, [])


def test_group_that_pops_on_stays_shown(exchange: Exchange, client: Caller) -> None:
    operator = exchange.connect("operator")
    for _ in range(100):
        client.ask(Request.POP_MESSAGE, pop_fields(exchange, pollTime="0"))
        exchange.advance(10_000)
    assert seen(operator)[0] == 0
    assert len(seen(operator)[1]) == 1


# -- crowds --------------------------------------------------------------------------------------


def test_a_crowd_is_answered_in_turns_and_nobody_is_left_out(exchange: Exchange) -> None:
    crowd = [
        exchange.connect(f"c{number}").begin_pull("T", hold_ms=HOLD_MS)
        for number in range(2 * RELEASED_AT_ONCE_MAX + 3)
    ]
    sender = exchange.connect("sender")
    assert sender.send("T", queue_id=0).code == 0
    assert sum(map(bool, crowd)) == RELEASED_AT_ONCE_MAX
    assert sender.send("T", queue_id=0).code == 0
    exchange.core.wake(exchange.now_ms)
    exchange._perform()
    assert sum(map(bool, crowd)) == 2 * RELEASED_AT_ONCE_MAX
    assert exchange.core.wake_at_ms() == 0
    exchange.advance(10)
    assert all(crowd)
    assert {pending.now.code for pending in crowd} == {0}
    assert exchange.core.wake_at_ms() > exchange.now_ms


def test_a_crowd_whose_time_is_over_is_answered_in_turns(exchange: Exchange) -> None:
    client = exchange.connect("c")
    crowd = [client.begin_pull("T", hold_ms=HOLD_MS) for _ in range(2 * RELEASED_AT_ONCE_MAX)]
    exchange.core.wake(exchange.now_ms + HOLD_MS)
    exchange._perform()
    assert sum(map(bool, crowd)) == RELEASED_AT_ONCE_MAX
    exchange.advance(HOLD_MS)
    assert all(crowd)


def test_a_crowd_that_waits_for_a_large_message_is_answered_in_turns() -> None:
    exchange = Exchange(store_settings=StoreSettings(log_segment_size=64 * 1024 * 1024))
    exchange.create_topic("T")
    body = bytes(RELEASED_SIZE_MAX // 4)
    crowd = [exchange.connect(f"c{number}").begin_pull("T", hold_ms=HOLD_MS) for number in range(9)]
    assert exchange.connect("sender").send("T", queue_id=0, body=body).code == 0
    assert sum(map(bool, crowd)) == 4
    exchange.core.wake(exchange.now_ms)
    exchange._perform()
    assert sum(map(bool, crowd)) == 8
    exchange.advance(10)
    assert all(pending.now.body == crowd[0].now.body for pending in crowd)


@pytest.mark.parametrize("kind", ["pull", "pop"])
def test_what_waited_is_answered_although_its_messages_cannot_be_read(
    exchange: Exchange, client: Caller, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending = begin(exchange, client, kind)

    def fail(*_: object, **__: object) -> None:
        raise StorageError("no descriptor is left")

    monkeypatch.setattr(exchange.core.broker.store, "get", fail)
    exchange.advance(HOLD_MS + 1_000)
    assert (pending.now.code, pending.now.remark) == (1, "no descriptor is left")
