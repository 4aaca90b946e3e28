from __future__ import annotations

import json
from typing import Any

import pytest

from escrowmq.base.codes import NOT_SET, Request
from escrowmq.codec import fastjson
from escrowmq.codec.hashes import tags_code
from tests.harness.exchange import START_MS, Caller, Exchange


@pytest.fixture(name="exchange")
def make_exchange() -> Exchange:
    exchange = Exchange()
    exchange.create_topic("T", 2)
    return exchange


@pytest.fixture(name="client")
def make_client(exchange: Exchange) -> Caller:
    client = exchange.connect("c1")
    client.heartbeat(producer="PG", consumer="CG", topics={"T": "a"})
    client.take()
    return client


def body_of(client: Caller, code: int, **ext: str) -> Any:
    reply = client.ask(code, ext)
    assert reply.code == 0, reply.remark
    return fastjson.decode_fastjson(reply.body)


def by_queue(table: dict[str, Any]) -> dict[tuple[str, int], Any]:
    return {(q.topic, q.queue_id): value for q, value in fastjson.decode_queue_map(table).items()}


def commit(client: Caller, offset: int, queue_id: int = 0) -> None:
    ext = {"consumerGroup": "CG", "topic": "T", "queueId": str(queue_id)}
    client.ask(Request.UPDATE_CONSUMER_OFFSET, ext | {"commitOffset": str(offset)})


def test_ends_of_all_queues_of_a_topic(exchange: Exchange, client: Caller) -> None:
    client.send("T")
    exchange.advance(1_000)
    client.send("T")
    body = body_of(client, Request.GET_TOPIC_STATS_INFO, topic="T")
    assert by_queue(body["offsetTable"]) == {
        ("T", 0): {"lastUpdateTimestamp": START_MS + 1_000, "maxOffset": 2, "minOffset": 0},
        ("T", 1): {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0},
    }
    reply = client.ask(Request.GET_TOPIC_STATS_INFO, {"topic": "X"})
    assert (reply.code, reply.remark) == (17, "topic[X] not exist")


def test_progress_of_a_group(exchange: Exchange, client: Caller) -> None:
    for _ in range(4):
        client.send("T")
    client.pull("T", fields={"maxMsgNums": "3"})
    commit(client, 2)
    body = body_of(client, Request.GET_CONSUME_STATS, consumerGroup="CG")
    table = by_queue(body["offsetTable"])
    assert table["T", 0] == {
        "brokerOffset": 4,
        "consumerOffset": 2,
        "lastTimestamp": START_MS,
        "pullOffset": 3,
    }
    assert table["T", 1]["brokerOffset"] == 0
    named = body_of(client, Request.GET_CONSUME_STATS, consumerGroup="CG", topicList="T;")
    assert named["offsetTable"] == body["offsetTable"]
    none = body_of(client, Request.GET_CONSUME_STATS, consumerGroup="Other")
    assert none["offsetTable"] == {}


def test_rates_are_of_the_last_minute(exchange: Exchange, client: Caller) -> None:
    client.send("T", TAGS="a")  # what is counted is sampled from then on
    exchange.advance(10_000)
    for _ in range(60):
        client.send("T", TAGS="a")
    client.pull("T")
    exchange.advance(60_000)
    body = body_of(client, Request.GET_TOPIC_STATS_INFO, topic="T")
    assert 0.5 <= body["topicPutTps"] <= 1.5
    body = body_of(client, Request.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS",
                   statsKey="T")  # fmt: skip
    assert body["statsMinute"]["sum"] == 60
    assert body["statsMinute"]["avgpt"] == 1.0
    reply = client.ask(
        Request.VIEW_BROKER_STATS_DATA, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "X"}
    )
    assert (reply.code, reply.remark) == (1, "The stats <TOPIC_PUT_NUMS> <X> not exist")


def test_backlog_of_all_groups_is_summed_up(client: Caller) -> None:
    for _ in range(4):
        client.send("T")
    client.pull("T", fields={"maxMsgNums": "3"})
    commit(client, 2)
    body = body_of(client, Request.GET_BROKER_CONSUME_STATS, isOrder="false")
    assert (body["totalDiff"], body["totalInflightDiff"]) == (2, 1)
    assert body["brokerAddr"] == "10.0.0.1:10911"
    (row,) = [row for row in body["consumeStatsList"] if "CG" in row]
    assert len(row["CG"]) == 1
    assert body_of(client, Request.GET_BROKER_CONSUME_STATS, isOrder="true")["totalDiff"] == 0


def test_groups_of_a_topic_are_those_that_are_live_and_those_with_offsets(client: Caller) -> None:
    assert body_of(client, Request.QUERY_TOPIC_CONSUME_BY_WHO, topic="T") == {"groupList": ["CG"]}
    ext = {"consumerGroup": "Away", "topic": "T", "queueId": "0", "commitOffset": "1"}
    client.ask(Request.UPDATE_CONSUMER_OFFSET, ext)
    body = body_of(client, Request.QUERY_TOPIC_CONSUME_BY_WHO, topic="T")
    assert set(body["groupList"]) == {"CG", "Away"}
    body = body_of(client, Request.QUERY_TOPICS_BY_CONSUMER, group="Away")
    assert body == {"brokerAddr": "10.0.0.1:10911", "topicList": ["T"]}


def test_spans_of_time_of_a_group(exchange: Exchange, client: Caller) -> None:
    for _ in range(3):
        client.send("T")
        exchange.advance(1_000)
    commit(client, 1)
    body = body_of(client, Request.QUERY_CONSUME_TIME_SPAN, topic="T", group="CG")
    first = body["consumeTimeSpanSet"][0]
    assert first["messageQueue"] == {"brokerName": "broker-a", "queueId": 0, "topic": "T"}
    assert first["minTimeStamp"] == START_MS
    assert first["maxTimeStamp"] == START_MS + 2_000
    assert first["consumeTimeStamp"] == START_MS
    assert first["delayTime"] == 2_000
    reply = client.ask(Request.QUERY_CONSUME_TIME_SPAN, {"topic": "X", "group": "CG"})
    assert (reply.code, reply.remark) == (17, "topic[X] not exist")


def test_units_of_a_queue_are_shown(client: Caller) -> None:
    client.send("T", TAGS="a")
    client.send("T", TAGS="b")
    ext = {"topic": "T", "queueId": "0", "index": "1", "count": "10", "consumerGroup": "CG"}
    reply = client.ask(Request.QUERY_CONSUME_QUEUE, ext)
    assert (reply.code, reply.remark) == (0, NOT_SET)
    body = json.loads(reply.body)
    (unit,) = body["queueData"]
    assert unit["tagsCode"] == tags_code("b")
    assert (body["minQueueIndex"], body["maxQueueIndex"], body["filterData"]) == (0, 2, "null")
    assert body["subscriptionData"]["subString"] == "a"
    reply = client.ask(Request.QUERY_CONSUME_QUEUE, ext | {"index": "5"})
    assert (reply.code, reply.body, reply.remark) == (0, b"", "Index 5 of 0@T is not exist!")
    reply = client.ask(Request.QUERY_CONSUME_QUEUE, ext | {"topic": "X"})
    assert (reply.code, reply.remark) == (1, "0@X is not exist!")
    away = body_of(client, Request.QUERY_CONSUME_QUEUE, **(ext | {"consumerGroup": "Away"}))
    assert away["filterData"] == "Away@T is not online!"
