from __future__ import annotations

import json
from typing import Any

import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.base.fixed_limits import (
    AUTO_CREATE_GROUPS_MAX,
    CLIENT_ID_SIZE_MAX,
    CONNECTION_GROUPS_MAX,
    CONNECTION_SUBSCRIPTIONS_MAX,
    GROUP_SIZE_MAX,
    GROUPS_AT_ONCE_MAX,
    NOTIFIED_AT_ONCE_MAX,
    SUBSCRIPTION_SIZE_MAX,
)
from escrowmq.codec.command import encode_request
from escrowmq.delivery.groups import GroupConfig
from tests.harness.exchange import Caller, Exchange


def notified(caller: Caller) -> list[str]:
    """Groups of which the broker said that their members changed."""
    taken = caller.take(Request.NOTIFY_CONSUMER_IDS_CHANGED)
    assert all(request.flag & 2 for request in taken)
    return [(request.ext or {})["consumerGroup"] for request in taken]


def members(caller: Caller, group: str = "CG") -> list[str]:
    reply = caller.ask(Request.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    if reply.code:
        assert (reply.code, reply.remark) == (1, f"no consumer for this group, {group}")
        return []
    found: list[str] = json.loads(reply.body)["consumerIdList"]
    return found


def subscribed(caller: Caller, group: str = "CG") -> dict[str, Any]:
    reply = caller.ask(Request.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group})
    found: dict[str, Any] = json.loads(reply.body)
    return found


# -- membership ----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_binary", [False, True])
def test_heartbeat_is_answered_with_what_the_broker_can(is_binary: bool) -> None:
    client = Exchange().connect()
    client.is_binary = is_binary
    reply = client.heartbeat(producer="PG", consumer="CG", topics={"T": "*"})
    assert reply.code == 0
    assert reply.ext == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}


def test_consumers_that_showed_themselves_are_listed() -> None:
    exchange = Exchange()
    first, second = exchange.connect("c1"), exchange.connect("c2")
    assert members(first) == []
    first.heartbeat(consumer="CG", topics={"T": "*"})
    second.heartbeat(consumer="CG", topics={"T": "*"})
    assert members(first) == ["c1", "c2"]


def test_two_connections_of_one_client_are_one_member() -> None:
    exchange = Exchange()
    for caller in (exchange.connect("c1"), exchange.connect("c1")):
        caller.heartbeat(consumer="CG", topics={"T": "*"})
    assert members(caller) == ["c1"]


def test_members_are_told_when_one_comes_and_when_one_goes() -> None:
    exchange = Exchange()
    first, second = exchange.connect("c1"), exchange.connect("c2")
    first.heartbeat(consumer="CG", topics={"T": "*"})
    assert notified(first) == ["CG"]
    second.heartbeat(consumer="CG", topics={"T": "*"})
    assert (notified(first), notified(second)) == (["CG"], ["CG"])
    second.leave()
    assert notified(first) == ["CG"]
    assert members(first) == ["c1"]


def test_repeated_heartbeat_tells_nobody_anything() -> None:
    client = Exchange().connect()
    client.heartbeat(consumer="CG", topics={"T": "*"})
    notified(client)
    client.heartbeat(consumer="CG", topics={"T": "*"})
    client.heartbeat(consumer="CG", topics={"T": "a || b"}, sub_version=2)  # other tags
    assert notified(client) == []
    client.heartbeat(consumer="CG", topics={"T": "*", "U": "*"}, sub_version=3)
    assert notified(client) == ["CG"]


def test_broadcasting_members_are_not_told_of_each_other() -> None:
    exchange = Exchange()
    first, second = exchange.connect("c1"), exchange.connect("c2")
    for caller in (first, second):
        caller.heartbeat(consumer="CG", topics={"T": "*"}, model="BROADCASTING")
    assert (notified(first), notified(second)) == ([], [])


def test_group_that_wants_no_notifications_gets_none() -> None:
    exchange = Exchange()
    client = exchange.connect()
    body = {"groupName": "CG", "notifyConsumerIdsChangedEnable": False}
    client.ask(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=json.dumps(body).encode())
    client.heartbeat(consumer="CG", topics={"T": "*"})
    other = exchange.connect()
    other.heartbeat(consumer="CG", topics={"T": "*"})
    other.leave()
    assert notified(client) == []


def test_heartbeat_creates_the_group_and_its_retry_topic() -> None:
    exchange = Exchange()
    exchange.connect().heartbeat(consumer="CG", topics={"T": "*"})
    assert exchange.core.broker.groups.find("CG") is not None
    retry = exchange.core.broker.topics.get("%RETRY%CG")
    assert retry is not None
    assert (retry.read_queue_nums, retry.write_queue_nums, retry.perm) == (1, 1, 6)
    assert not retry.order


def test_retry_topic_of_a_group_on_an_order_topic_is_ordered() -> None:
    exchange = Exchange()
    exchange.create_topic("T", order="true")
    exchange.connect().heartbeat(consumer="CG", topics={"T": "*"})
    retry = exchange.core.broker.topics.get("%RETRY%CG")
    assert retry is not None
    assert retry.order


def test_consumer_of_an_unknown_group_is_passed_over_where_groups_are_not_created() -> None:
    client = Exchange(BrokerSettings(creates_groups=False)).connect()
    assert client.heartbeat(consumer="CG", topics={"T": "*"}).code == 0
    assert members(client) == []


def test_group_with_an_illegal_name_is_passed_over() -> None:
    client = Exchange().connect()
    for name in ("a b", "", "x" * 256):
        assert client.heartbeat(consumer=name, topics={"T": "*"}).code == 0
        assert members(client, name) == []


def test_spelling_of_the_go_client_is_understood() -> None:
    client = Exchange().connect()
    body = {
        "clientID": "go@1",
        "consumerDataSet": [
            {
                "groupName": "CG",
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "Clustering",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": [
                    {"topic": "T", "subString": "a", "codeSet": ["97"], "subVersion": 1}
                ],
            }
        ],
    }
    assert client.ask(Request.HEART_BEAT, body=json.dumps(body).encode()).code == 0
    found = subscribed(client)
    assert found["messageModel"] == "CLUSTERING"
    assert found["subscriptionTable"]["T"]["subString"] == "a"


def test_known_fingerprint_means_that_nothing_has_changed() -> None:
    client = Exchange().connect()
    first = client.heartbeat(consumer="CG", topics={"T": "*"}, heartbeatFingerprint=77)
    assert (first.ext or {})["IS_SUB_CHANGE"] == "true"
    again = client.heartbeat(consumer="CG", heartbeatFingerprint=77, withoutSub=True)
    assert (again.ext or {})["IS_SUB_CHANGE"] == "false"
    assert "T" in subscribed(client)["subscriptionTable"]
    other = client.heartbeat(consumer="CG", topics={"T": "*"}, heartbeatFingerprint=78)
    assert (other.ext or {})["IS_SUB_CHANGE"] == "true"


def test_fingerprint_does_not_outlive_its_connection() -> None:
    exchange = Exchange()
    client = exchange.connect()
    client.heartbeat(consumer="CG", topics={"T": "*"}, heartbeatFingerprint=77)
    client.leave()
    again = exchange.connect().heartbeat(consumer="CG", topics={"T": "*"}, heartbeatFingerprint=77)
    assert (again.ext or {})["IS_SUB_CHANGE"] == "true"


def test_a_member_that_was_dropped_names_its_topics_again() -> None:
    exchange = Exchange()
    client = exchange.connect()
    client.heartbeat(consumer="CG", topics={"T": "*"}, heartbeatFingerprint=77)
    exchange.advance(90_000)
    client.heartbeat(producer="PG", heartbeatFingerprint=77)
    exchange.advance(90_000)
    assert "CG" not in exchange.core.broker.clients.consumers
    again = client.heartbeat(consumer="CG", heartbeatFingerprint=77, withoutSub=True)
    assert (again.ext or {})["IS_SUB_CHANGE"] == "true"


def test_members_name_their_topics_again_when_those_of_another_member_were_dropped() -> None:
    exchange = Exchange()
    member, other = exchange.connect(), exchange.connect()
    half = {f"T{number}": "*" for number in range(CONNECTION_SUBSCRIPTIONS_MAX // 2 + 1)}
    member.heartbeat(consumer="CG", topics={"T": "*"})
    member.heartbeat(consumer="DG", topics=half, heartbeatFingerprint=77)
    other.heartbeat(consumer="CG", topics=half)
    other.leave()
    again = [
        member.heartbeat(consumer="CG", heartbeatFingerprint=77, withoutSub=True) for _ in range(2)
    ]
    assert [(one.ext or {})["IS_SUB_CHANGE"] for one in again] == ["true", "false"]


def test_older_subscription_does_not_replace_a_newer_one() -> None:
    exchange = Exchange()
    first, second = exchange.connect("c1"), exchange.connect("c2")
    first.heartbeat(consumer="CG", topics={"T": "new"}, sub_version=5)
    second.heartbeat(consumer="CG", topics={"T": "old"}, sub_version=4)
    assert subscribed(first)["subscriptionTable"]["T"]["subString"] == "new"


@pytest.mark.parametrize("body", [b"", b"{}", b"nonsense", b"[1]", b'{"clientID":5}', b"\xff"])
def test_heartbeat_that_cannot_be_read_is_answered_with_1(body: bytes) -> None:
    assert Exchange().connect().ask(Request.HEART_BEAT, body=body).code == 1


# -- leaving -------------------------------------------------------------------------------------


def test_unregistered_client_is_no_member_any_more() -> None:
    exchange = Exchange()
    first, second = exchange.connect("c1"), exchange.connect("c2")
    for caller in (first, second):
        caller.heartbeat(producer="PG", consumer="CG", topics={"T": "*"})
    notified(first)
    ext = {"clientID": "c2", "producerGroup": "PG", "consumerGroup": "CG"}
    reply = second.ask(Request.UNREGISTER_CLIENT, ext)
    assert (reply.code, reply.ext) == (0, None)
    assert members(first) == ["c1"]
    assert notified(first) == ["CG"]
    producers = first.ask(Request.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "PG"})
    assert [c["clientId"] for c in json.loads(producers.body)["connectionSet"]] == ["c1"]


def test_client_that_is_silent_for_two_minutes_is_dropped() -> None:
    exchange = Exchange()
    silent, loud = exchange.connect("c1"), exchange.connect("c2")
    for caller in (silent, loud):
        caller.heartbeat(producer="PG", consumer="CG", topics={"T": "*"})
    for _ in range(5):
        exchange.advance(30_000)
        loud.heartbeat(producer="PG", consumer="CG", topics={"T": "*"})
    assert members(loud) == ["c2"]


def test_last_member_takes_its_group_along() -> None:
    exchange = Exchange()
    client = exchange.connect()
    client.heartbeat(consumer="CG", topics={"T": "*"})
    client.leave()
    assert members(exchange.connect()) == []


# -- locks ---------------------------------------------------------------------------------------


def lock(caller: Caller, *queues: int, group: str = "CG", code: int = 41) -> list[int]:
    mq_set = [{"brokerName": "broker-a", "queueId": q, "topic": "T"} for q in queues]
    body = {"clientId": caller.client_id, "consumerGroup": group, "mqSet": mq_set}
    reply = caller.ask(code, body=json.dumps(body).encode())
    assert reply.code == 0
    if code == Request.UNLOCK_BATCH_MQ:
        assert reply.body == b""
        return []
    return [queue["queueId"] for queue in json.loads(reply.body)["lockOKMQSet"]]


def test_queue_is_locked_by_one_client_for_a_minute() -> None:
    exchange = Exchange()
    exchange.create_topic("T", queues=3)
    first, second = exchange.connect("c1"), exchange.connect("c2")
    assert lock(first, 0, 1) == [0, 1]
    assert lock(second, 1, 2) == [2]
    assert lock(first, 0, 1) == [0, 1]
    exchange.advance(59_999)
    assert lock(second, 0) == []
    exchange.advance(1)
    assert lock(second, 0) == [0]


def test_locks_of_groups_are_independent() -> None:
    exchange = Exchange()
    exchange.create_topic("T", queues=3)
    assert lock(exchange.connect("c1"), 0) == [0]
    assert lock(exchange.connect("c2"), 0, group="Other") == [0]


def test_unlocked_queue_is_free_but_only_its_owner_unlocks_it() -> None:
    exchange = Exchange()
    exchange.create_topic("T", queues=3)
    first, second = exchange.connect("c1"), exchange.connect("c2")
    lock(first, 0)
    lock(second, 0, code=Request.UNLOCK_BATCH_MQ)
    assert lock(second, 0) == []
    lock(first, 0, code=Request.UNLOCK_BATCH_MQ)
    assert lock(second, 0) == [0]


@pytest.mark.parametrize(("as_rocketmq", "locked"), [(False, []), (True, [0])])
def test_a_group_that_may_not_exist_locks_nothing(*, as_rocketmq: bool, locked: list[int]) -> None:
    """Otherwise a client could use up all locks with groups that it invents."""
    exchange = Exchange(BrokerSettings(creates_groups=False, places_as_rocketmq=as_rocketmq))
    exchange.create_topic("T")
    client = exchange.connect()
    assert lock(client, 0) == locked
    exchange.core.broker.groups.put(GroupConfig(group_name="CG"), exchange.now_ms)
    assert lock(client, 0) == [0]


def test_a_group_is_created_by_its_first_lock() -> None:
    """A consumer may lock a queue of a new broker before its next heartbeat there."""
    exchange = Exchange()
    exchange.create_topic("T")
    assert lock(exchange.connect(), 0) == [0]
    assert exchange.core.broker.groups.find("CG") is not None


def test_only_queues_that_exist_are_locked() -> None:
    exchange = Exchange()
    exchange.create_topic("T", queues=2)
    client = exchange.connect("c1")
    assert lock(client, -1, 0, 1, 2, 1_000_000) == [0, 1]
    exchange.settings.places_as_rocketmq = True
    assert lock(client, 7) == [7]


# -- filters -------------------------------------------------------------------------------------


def check(client: Caller, kind: str | None, text: str) -> tuple[int, str | None]:
    data = {"topic": "T", "subString": text, "expressionType": kind}
    body = {"clientId": "c", "group": "CG", "namespace": "", "subscriptionData": data}
    reply = client.ask(Request.CHECK_CLIENT_CONFIG, body=json.dumps(body).encode())
    return reply.code, reply.remark


def test_tags_are_always_served() -> None:
    client = Exchange().connect()
    assert check(client, "TAG", "a || b") == (0, None)
    assert check(client, None, "a") == (0, None)
    assert client.ask(Request.CHECK_CLIENT_CONFIG).code == 0


def test_sql_is_served_when_enabled_and_parsed() -> None:
    exchange = Exchange()
    client = exchange.connect()
    remark = "The broker does not support consumer to filter message by SQL92"
    assert check(client, "SQL92", "n > 1") == (1, remark)
    exchange.settings.has_property_filter = True
    assert check(client, "SQL92", "n > 1") == (0, None)
    code, text = check(client, "SQL92", "n >")
    assert code == 23
    assert text


# -- bounds --------------------------------------------------------------------------------------


def test_heartbeat_with_too_many_groups_is_refused_whole() -> None:
    exchange = Exchange()
    client = exchange.connect()
    groups = [{"groupName": f"P{number}"} for number in range(CONNECTION_GROUPS_MAX + 1)]
    reply = client.heartbeat(consumer="CG", topics={"T": "*"}, producerDataSet=groups)
    assert reply.code == 1
    assert f"{CONNECTION_GROUPS_MAX} are allowed; distribute them" in (reply.remark or "")
    assert members(client) == []
    assert exchange.core.broker.groups.find("CG") is None
    reply = client.heartbeat(consumer="CG", topics={"T": "*"}, producerDataSet=groups[:-2])
    assert (reply.code, members(client)) == (0, [client.client_id])


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (
            {"topics": {f"T{n}": "*" for n in range(CONNECTION_SUBSCRIPTIONS_MAX + 1)}},
            "distribute them",
        ),
        ({"topics": {"T": "x" * SUBSCRIPTION_SIZE_MAX}}, "select by a property"),
        (
            {"topics": {"T": "*"}, "expression_type": "x" * SUBSCRIPTION_SIZE_MAX},
            "select by a property",
        ),
        ({"topics": {"T": "*"}, "clientID": "x" * (CLIENT_ID_SIZE_MAX + 1)}, "choose a shorter"),
        ({"topics": {"T": "*"}, "producer": "x" * (GROUP_SIZE_MAX + 1)}, "choose a shorter"),
    ],
    ids=["subscriptions", "expression", "type", "client id", "producer group"],
)
def test_heartbeat_that_is_too_large_is_refused(options: dict[str, Any], hint: str) -> None:
    client = Exchange().connect()
    reply = client.heartbeat(consumer="CG", **options)
    assert reply.code == 1
    assert hint in (reply.remark or "")
    assert members(client) == []


def test_group_beyond_those_that_are_created_by_themselves_is_refused() -> None:
    exchange = Exchange()
    client = exchange.connect()
    groups = exchange.core.broker.groups
    for number in range(AUTO_CREATE_GROUPS_MAX - len(groups.names()) - 1):
        groups.put(GroupConfig(group_name=f"of-an-operator-{number}"), exchange.now_ms)
    assert client.heartbeat(consumer="A", topics={"T": "*"}).code == 0
    reply = client.heartbeat(consumer="B", topics={"T": "*"})
    assert reply.code == 1
    assert "have an operator create it" in (reply.remark or "")
    assert client.pull("T", group="B").code == 1
    groups.put(GroupConfig(group_name="B"), exchange.now_ms)
    assert client.heartbeat(consumer="B", topics={"T": "*"}).code == 0


def test_subscriptions_that_take_much_memory_are_refused_whole() -> None:
    client = Exchange().connect()
    tags = [f"{number:02}" for number in range(100)] * 40
    topics = {f"T{number}": "||".join(tags) for number in range(20)}
    one = {
        "subString": "*", "subVersion": 1, "expressionType": "TAG", "tagsSet": tags,
        "codeSet": list(range(4_000)), "classFilterMode": False,
    }  # fmt: skip
    consumer = {
        "groupName": "CG", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "subscriptionDataSet": [{"topic": topic, **one} for topic in topics],
    }  # fmt: skip
    body = {"clientID": "c1", "consumerDataSet": [consumer]}
    reply = client.ask(Request.HEART_BEAT, body=json.dumps(body).encode())
    assert reply.code == 1
    assert "bytes on one connection; 4194304 are allowed" in (reply.remark or "")
    assert members(client) == []


def test_overlong_names_are_given_no_locks() -> None:
    client = Exchange().connect()
    for group, topic in (("x" * 2000, "T"), ("CG", "x" * 2000)):
        queue = {"brokerName": "broker-a", "queueId": 0, "topic": topic}
        body = {"clientId": "c1", "consumerGroup": group, "mqSet": [queue]}
        reply = client.ask(Request.LOCK_BATCH_MQ, body=json.dumps(body).encode())
        assert json.loads(reply.body) == {"lockOKMQSet": []}


def test_peer_that_does_not_end_a_frame_is_cut() -> None:
    exchange = Exchange()
    slow, good = exchange.connect(), exchange.connect()
    frame = encode_request(Request.HEART_BEAT, 1, body=b'{"clientID":"c"}')
    for at in range(len(frame) - 1):
        if slow.closed is None:
            exchange.feed(slow, frame[at : at + 1])
        good.heartbeat(producer="PG")
        exchange.advance(2_000)
    assert slow.closed == "a frame was begun and not ended"
    assert good.closed is None


def test_members_of_many_groups_are_told_of_changes_in_turns_and_all_of_them() -> None:
    exchange = Exchange()
    groups = [f"G{number}" for number in range(60)]
    clients = [exchange.connect(f"c{number}") for number in range(20)]
    for client in clients:
        for group in groups:
            client.heartbeat(consumer=group, topics={"T": "*"})
    exchange.advance(1_000)
    for client in clients:
        notified(client)
    clients.pop().leave()
    at_once = sum(len(notified(client)) for client in clients)
    assert 0 < at_once <= NOTIFIED_AT_ONCE_MAX
    assert exchange.core.wake_at_ms() == 0
    exchange.advance(1)
    later = sum(len(notified(client)) for client in clients)
    assert at_once + later == len(clients) * len(groups)
    assert exchange.core.wake_at_ms() > exchange.now_ms


def test_a_heartbeat_creates_some_groups_and_the_next_one_more() -> None:
    exchange = Exchange()
    client = exchange.connect("c1")
    names = [f"G{number}" for number in range(GROUPS_AT_ONCE_MAX + 5)]
    body = {"clientID": "c1", "consumerDataSet": [{"groupName": name} for name in names]}
    for there in (GROUPS_AT_ONCE_MAX, len(names)):
        assert client.ask(Request.HEART_BEAT, body=json.dumps(body).encode()).code == 0
        found = [name for name in names if members(client, name)]
        assert len(found) == there
