from __future__ import annotations

import json
from typing import Any

import pytest

from escrowmq.base.codes import NOT_SET, Request
from escrowmq.base.command import Command
from escrowmq.codec.record import decode_records
from tests.harness.exchange import Caller, Exchange


@pytest.fixture(name="exchange")
def make_exchange() -> Exchange:
    return Exchange()


@pytest.fixture(name="operator")
def make_operator(exchange: Exchange) -> Caller:
    return exchange.connect()


def put(operator: Caller, topic: str, **more: str) -> Command:
    ext = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "3",
        "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    return operator.ask(Request.UPDATE_AND_CREATE_TOPIC, ext | more)


def topic_of(operator: Caller, name: str) -> dict[str, Any]:
    reply = operator.ask(Request.GET_TOPIC_CONFIG, {"topic": name})
    assert reply.code == 0, reply.remark
    found: dict[str, Any] = json.loads(reply.body)
    return found


def test_topic_is_created_and_shown(operator: Caller) -> None:
    reply = put(operator, "T", order="true", attributes="+message.type=NORMAL")
    assert (reply.code, reply.remark) == (0, NOT_SET)
    assert topic_of(operator, "T") == {
        "attributes": {"message.type": "NORMAL"},
        "order": True,
        "perm": 6,
        "readQueueNums": 4,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "T",
        "topicSysFlag": 0,
        "writeQueueNums": 3,
    }


def test_attributes_of_a_topic_are_merged(operator: Caller) -> None:
    put(operator, "T", attributes="+message.type=NORMAL,+reserve.time=5")
    put(operator, "T", attributes="-reserve.time,+message.type=DELAY")
    assert topic_of(operator, "T")["attributes"] == {"message.type": "DELAY"}


@pytest.mark.parametrize(
    "attributes",
    ["+message.type=WRONG", "+unknown=x", "-message.type", "message.type=NORMAL", "+message.type"],
)
def test_bad_attributes_of_a_new_topic_are_refused_with_1(
    operator: Caller, attributes: str
) -> None:
    assert put(operator, "T", attributes=attributes).code == 1
    assert operator.ask(Request.GET_TOPIC_CONFIG, {"topic": "T"}).code == 17


def test_mixed_type_is_refused_unless_enabled(exchange: Exchange, operator: Caller) -> None:
    reply = put(operator, "T", attributes="+message.type=MIXED")
    assert (reply.code, reply.remark) == (29, "MIXED message type is not supported.")
    exchange.settings.allows_mixed_type = True
    assert put(operator, "T", attributes="+message.type=MIXED").code == 0


ILLEGAL = "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"


@pytest.mark.parametrize(
    ("topic", "remark"),
    [
        ("", "The specified topic is blank."),
        ("a b", ILLEGAL),
        ("TBW102", "The topic[TBW102] is conflict with system topic."),
        ("rmq_sys_mine", "The topic[rmq_sys_mine] is conflict with system topic."),
    ],
)
def test_bad_names_are_refused_with_29(operator: Caller, topic: str, remark: str) -> None:
    reply = put(operator, topic)
    assert (reply.code, reply.remark) == (29, remark)


@pytest.mark.parametrize("count", ["-1", "65537", "2000000000"])
@pytest.mark.parametrize("field", ["readQueueNums", "writeQueueNums"])
def test_odd_numbers_of_queues_are_refused_with_29(
    operator: Caller, field: str, count: str
) -> None:
    assert put(operator, "T", **{field: count}).code == 29


def test_several_topics_are_created_or_none(operator: Caller) -> None:
    def ask(*topics: dict[str, Any]) -> Command:
        body = json.dumps({"topicConfigList": topics}).encode()
        return operator.ask(Request.UPDATE_AND_CREATE_TOPIC_LIST, body=body)

    assert ask({"topicName": "A"}, {"topicName": "B", "perm": 4}).code == 0
    assert topic_of(operator, "B")["perm"] == 4
    for bad in (
        {"topicName": "a b"},
        {"topicName": "TBW102"},
        {"topicName": "D", "attributes": {"+message.type": "MIXED"}},
        {"topicName": "D", "attributes": {"message.type": "WRONG"}},
    ):
        assert ask({"topicName": "C"}, bad).code in (1, 29)
        assert operator.ask(Request.GET_TOPIC_CONFIG, {"topic": "C"}).code == 17
    assert operator.ask(Request.UPDATE_AND_CREATE_TOPIC_LIST, body=b"x").code == 1


def test_deleted_topic_is_gone_with_messages_offsets_and_retry_topics_of_pops(
    exchange: Exchange, operator: Caller
) -> None:
    exchange.create_topic("T")
    for topic in ("T", "%RETRY%CG_T", "%RETRY%CG+T", "%RETRY%CG"):
        operator.send(topic)
    ext = {"consumerGroup": "CG", "topic": "T", "queueId": "0", "commitOffset": "1"}
    operator.ask(Request.UPDATE_CONSUMER_OFFSET, ext)
    assert operator.ask(Request.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 0
    for topic, code in (("T", 17), ("%RETRY%CG_T", 17), ("%RETRY%CG", 0)):
        assert operator.ask(Request.GET_TOPIC_CONFIG, {"topic": topic}).code == code
    exchange.create_topic("T")
    assert operator.bodies("T") == []
    ext["setZeroIfNotFound"] = "false"
    assert operator.ask(Request.QUERY_CONSUMER_OFFSET, ext).code == 22
    assert operator.ask(Request.DELETE_TOPIC_IN_BROKER, {"topic": "none"}).code == 0


def test_deletion_takes_no_retry_topic_of_another_group_or_topic(
    exchange: Exchange, operator: Caller
) -> None:
    for topic in ("orders", "not_paid", "paid"):
        exchange.create_topic(topic)
    popped = {
        "consumerGroup": "g", "topic": "not_paid", "queueId": "-1", "maxMsgNums": "1",
        "invisibleTime": "1000", "pollTime": "0", "bornTime": "0", "initMode": "0",
        "order": "false",
    }  # fmt: skip
    operator.heartbeat(consumer="mailer_paid", topics={"orders": "*"})
    operator.send("orders", b"order 1")
    (message,) = operator.messages("orders")
    back = {"group": "mailer_paid", "offset": str(message.log_offset), "delayLevel": "1"}
    assert operator.ask(Request.CONSUMER_SEND_MSG_BACK, back).code == 0
    operator.send("not_paid", b"reminder 1")
    assert operator.ask(Request.POP_MESSAGE, popped).code == 0
    exchange.advance(5_000)
    # A group that reads the topic, and whose older retry topic would have a name in use.
    commit = {"consumerGroup": "mailer", "topic": "paid", "queueId": "0", "commitOffset": "0"}
    operator.ask(Request.UPDATE_CONSUMER_OFFSET, commit)
    before = {name for name in exchange.core.broker.topics.names() if name.startswith("%RETRY%")}
    assert {"%RETRY%mailer_paid"} < before
    assert operator.ask(Request.DELETE_TOPIC_IN_BROKER, {"topic": "paid"}).code == 0
    assert before <= set(exchange.core.broker.topics.names())
    exchange.advance(60_000)
    assert [m.body for m in decode_records(operator.ask(Request.POP_MESSAGE, popped).body)] == [
        b"reminder 1"
    ]


@pytest.mark.parametrize("code", [Request.DELETE_TOPIC_IN_BROKER, Request.GET_BROKER_CONSUME_STATS])
def test_offsets_are_not_searched_for_each_group(
    exchange: Exchange, operator: Caller, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """With 1,000 groups and 100,000 offsets, each took 23 s, in which nothing else was served."""
    exchange.create_topic("T")
    for number in range(20):
        ext = {"consumerGroup": f"G{number}", "topic": "T", "queueId": "0", "commitOffset": "0"}
        operator.ask(Request.UPDATE_CONSUMER_OFFSET, ext)
    table, searches = exchange.core.broker.offsets, []
    parsed_keys = getattr(table, "_parsed_keys")  # noqa: B009 - it is the table's own

    def count_search() -> Any:
        searches.append(code)
        return parsed_keys()

    monkeypatch.setattr(table, "_parsed_keys", count_search)
    assert operator.ask(code, {"topic": "T"}).code == 0
    assert 0 < len(searches) <= 2


def test_system_topics_are_not_deleted(operator: Caller) -> None:
    for topic in ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TBW102"):
        reply = operator.ask(Request.DELETE_TOPIC_IN_BROKER, {"topic": topic})
        assert (reply.code, reply.remark) == (
            29,
            f"The topic[{topic}] is conflict with system topic.",
        )
    assert operator.ask(Request.DELETE_TOPIC_IN_BROKER, {"topic": " "}).code == 29


def test_all_topics_and_system_topics_are_listed(operator: Caller) -> None:
    put(operator, "T")
    reply = operator.ask(Request.GET_ALL_TOPIC_CONFIG)
    body = json.loads(reply.body)
    assert body["topicConfigTable"]["T"]["readQueueNums"] == 4
    assert body["dataVersion"]["counter"] > 0
    assert (reply.ext or {})["totalTopicNum"] == str(len(body["topicConfigTable"]))
    names = json.loads(operator.ask(Request.GET_SYSTEM_TOPIC_LIST_FROM_BROKER).body)["topicList"]
    assert {"TBW102", "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"} <= set(names)
    assert "T" not in names


def test_unknown_topic_is_answered_with_17(operator: Caller) -> None:
    reply = operator.ask(Request.GET_TOPIC_CONFIG, {"topic": "T"})
    assert (reply.code, reply.remark) == (17, "No topic in this broker. topic: T")


def test_topics_outlive_a_crash(exchange: Exchange, operator: Caller) -> None:
    put(operator, "T")
    exchange.crash()
    assert topic_of(exchange.connect(), "T")["writeQueueNums"] == 3
