from __future__ import annotations

from typing import Any

import pytest

from escrowmq.base.codes import Request
from escrowmq.codec import fastjson
from tests.harness.exchange import Caller, Exchange


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


def test_connections_of_consumers_and_producers_are_shown(client: Caller) -> None:
    connection = {
        "clientAddr": "10.0.0.9:40002",
        "clientId": "c1",
        "language": "JAVA",
        "version": 479,
    }
    body = body_of(client, Request.GET_CONSUMER_CONNECTION_LIST, consumerGroup="CG")
    assert body["connectionSet"] == [connection]
    assert body["consumeType"] == "CONSUME_PASSIVELY"
    assert body["consumeFromWhere"] == "CONSUME_FROM_LAST_OFFSET"
    assert body["subscriptionTable"]["T"]["subString"] == "a"
    body = body_of(client, Request.GET_PRODUCER_CONNECTION_LIST, producerGroup="PG")
    assert body == {"connectionSet": [connection]}
    (shown,) = body_of(client, Request.GET_ALL_PRODUCER_INFO)["data"]["PG"]
    assert (shown["clientId"], shown["remoteIP"]) == ("c1", "/10.0.0.9:40002")
    reply = client.ask(Request.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "X"})
    assert (reply.code, reply.remark) == (206, "the consumer group[X] not online")
    reply = client.ask(Request.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "X"})
    assert (reply.code, reply.remark) == (1, "the producer group[X] not exist")


@pytest.mark.parametrize(
    ("language", "shown"), [("GO", "GO"), ("KLINGON", "OTHER"), (None, "OTHER"), (9, "GO")]
)
def test_language_of_a_client_is_shown_under_its_name(
    exchange: Exchange, language: str | int | None, shown: str
) -> None:
    client = exchange.connect()
    client.language = language
    client.heartbeat(producer="P2")
    body = body_of(client, Request.GET_PRODUCER_CONNECTION_LIST, producerGroup="P2")
    assert body["connectionSet"][0]["language"] == shown


def test_subscription_of_a_live_group_is_shown(client: Caller) -> None:
    ext = {"group": "CG", "topic": "T"}
    body = body_of(client, Request.QUERY_SUBSCRIPTION_BY_CONSUMER, **ext)
    assert body["subscriptionData"]["subString"] == "a"
    body = body_of(client, Request.QUERY_SUBSCRIPTION_BY_CONSUMER, group="X", topic="T")
    assert body == {"group": "X", "topic": "T"}
