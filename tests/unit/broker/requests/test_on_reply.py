from __future__ import annotations

import pytest

from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.codec.properties import encode_properties, parse_properties
from tests.harness.exchange import Caller, Exchange, Pending


@pytest.fixture(name="exchange")
def make_exchange() -> Exchange:
    return Exchange()


def reply_to(caller: Caller, client: str | None, *, flag: int = 0, code: int = 325) -> Pending:
    properties = {"CORRELATION_ID": "x"} | ({"REPLY_TO_CLIENT": client} if client else {})
    text = encode_properties(properties).decode()
    if code == Request.SEND_REPLY_MESSAGE_V2:
        ext = {"a": "PG", "b": "DefaultCluster_REPLY_TOPIC", "c": "TBW102", "d": "4", "e": "0",
               "f": "0", "g": "5", "h": "3", "i": text, "j": "0"}  # fmt: skip
    else:
        ext = {"producerGroup": "PG", "topic": "DefaultCluster_REPLY_TOPIC", "queueId": "0",
               "sysFlag": "0", "bornTimestamp": "5", "flag": "3", "properties": text}  # fmt: skip
    return caller.begin(code, ext, b"answer", flag=flag)


@pytest.mark.parametrize("code", [324, 325])
def test_reply_is_pushed_to_the_client_that_asked_and_kept(exchange: Exchange, code: int) -> None:
    asker = exchange.connect("asker")
    asker.heartbeat(producer="PG")
    consumer = exchange.connect()
    pending = reply_to(consumer, "asker", code=code)
    (push,) = asker.take()
    assert push.code == Request.PUSH_REPLY_MESSAGE_TO_CLIENT
    assert push.body == b"answer"
    ext = push.ext or {}
    properties = parse_properties(ext["properties"])
    assert properties["PUSH_REPLY_TIME"] == str(exchange.now_ms)
    assert properties["CORRELATION_ID"] == "x"
    assert ext["bornHost"] == "/10.0.0.9:40002"
    assert ext["storeHost"] == "/10.0.0.1:10911"
    assert ext["flag"] == "3"
    assert not pending
    asker.answer(push)
    assert pending.now.code == 0
    assert set(pending.now.ext or {}) == {"msgId", "queueId", "queueOffset"}
    assert consumer.bodies("DefaultCluster_REPLY_TOPIC") == [b"answer"]


def test_reply_goes_to_the_newest_connection_of_a_client(exchange: Exchange) -> None:
    """The older one may be lost, which the broker notices only after two minutes."""
    connections = [exchange.connect("asker") for _ in range(2)]
    for connection in connections:
        connection.heartbeat(producer="PG")
    pending = reply_to(exchange.connect(), "asker")
    (push,) = connections[1].take()
    connections[1].answer(push)
    assert pending.now.code == 0
    assert connections[0].take() == []


def test_reply_that_cannot_be_pushed_is_refused(exchange: Exchange) -> None:
    consumer = exchange.connect()
    reply = reply_to(consumer, None).now
    remark = "reply message properties[REPLY_TO_CLIENT] is null"
    assert (reply.code, reply.remark) == (1, remark)
    reply = reply_to(consumer, "asker").now
    remark = "push reply message fail, channel of <asker> not found."
    assert (reply.code, reply.remark) == (1, remark)


def test_reply_that_its_client_does_not_take_is_told_so(exchange: Exchange) -> None:
    asker = exchange.connect("asker")
    asker.heartbeat(producer="PG")
    consumer = exchange.connect()
    refused = reply_to(consumer, "asker")
    (push,) = asker.take()
    asker.answer(push, 1)
    assert (refused.now.code, refused.now.remark) == (1, "push reply message to <asker>fail.")
    silent = reply_to(consumer, "asker")
    exchange.advance(10_000)
    assert silent.now.code == 1


def test_one_way_reply_is_pushed_and_not_answered(exchange: Exchange) -> None:
    asker = exchange.connect("asker")
    asker.heartbeat(producer="PG")
    pending = reply_to(exchange.connect(), "asker", flag=2)
    (push,) = asker.take()
    asker.answer(push)
    assert not pending


def test_replies_are_not_kept_where_that_is_not_wanted(exchange: Exchange) -> None:
    exchange.settings.stores_replies = False
    asker = exchange.connect("asker")
    asker.heartbeat(producer="PG")
    consumer = exchange.connect()
    pending = reply_to(consumer, "asker")
    asker.answer(asker.take()[0])
    reply: Command = pending.now
    assert (reply.code, reply.ext) == (0, {})
    assert consumer.bodies("DefaultCluster_REPLY_TOPIC") == []
