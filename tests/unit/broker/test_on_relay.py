from __future__ import annotations

import pytest

from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.codec import fastjson
from escrowmq.codec.properties import encode_properties, parse_properties
from escrowmq.codec.record import decode_record
from tests.harness.exchange import Caller, Exchange, Pending


@pytest.fixture(name="exchange")
def make_exchange() -> Exchange:
    return Exchange()


@pytest.fixture(name="consumer")
def make_consumer(exchange: Exchange) -> Caller:
    consumer = exchange.connect("c1")
    consumer.heartbeat(consumer="CG", topics={"T": "*"})
    consumer.take()
    return consumer


def ask_info(exchange: Exchange, client: str = "c1", *, is_binary: bool = False) -> Pending:
    operator = exchange.connect()
    operator.is_binary = is_binary
    ext = {"consumerGroup": "CG", "clientId": client, "jstackEnable": "true"}
    return operator.begin(Request.GET_CONSUMER_RUNNING_INFO, ext)


# -- operators to consumers ----------------------------------------------------------------------


@pytest.mark.parametrize("is_binary", [False, True])
def test_question_is_passed_on_and_its_answer_passed_back(
    exchange: Exchange, consumer: Caller, is_binary: bool
) -> None:
    pending = ask_info(exchange, is_binary=is_binary)
    (request,) = consumer.take()
    assert request.code == Request.GET_CONSUMER_RUNNING_INFO
    assert (request.ext or {})["jstackEnable"] == "true"
    assert not pending
    consumer.answer(request, 0, body=b'{"properties":{}}', ext={"a": "b"}, remark="fine")
    reply = pending.now
    assert (reply.code, reply.body, reply.ext, reply.remark) == (
        0,
        b'{"properties":{}}',
        {"a": "b"},
        "fine",
    )
    assert reply.is_binary == is_binary


def test_consumer_that_does_not_answer_is_waited_for_ten_seconds(
    exchange: Exchange, consumer: Caller
) -> None:
    pending = ask_info(exchange)
    exchange.advance(9_999)
    assert not pending
    exchange.advance(1)
    assert pending.now.code == 207
    assert (pending.now.remark or "").startswith("consumer <CG> <c1> Timeout: ")
    (request,) = consumer.take()
    consumer.answer(request)  # too late, and dropped


def test_consumer_that_goes_is_not_waited_for(exchange: Exchange, consumer: Caller) -> None:
    pending = ask_info(exchange)
    consumer.leave()
    assert pending.now.code == 207


def test_consumer_that_is_not_there_or_too_old_is_refused(exchange: Exchange) -> None:
    reply = ask_info(exchange).now
    assert (reply.code, reply.remark) == (1, "The Consumer <CG> <c1> not online")
    old = exchange.connect("c1")
    old.version = 61
    old.heartbeat(consumer="CG", topics={"T": "*"})
    reply = ask_info(exchange).now
    assert reply.code == 1
    assert "too low to finish, please upgrade it to V3_1_8_SNAPSHOT" in (reply.remark or "")


@pytest.mark.parametrize("is_binary", [False, True])
@pytest.mark.parametrize(
    ("code", "ext"), [(-100_000, None), (100_000, None), (0, {"k" * 70_000: "v"})]
)
def test_odd_answer_of_a_client_harms_nobody(
    exchange: Exchange, consumer: Caller, code: int, ext: dict[str, str] | None, is_binary: bool
) -> None:
    pending = ask_info(exchange, is_binary=is_binary)
    (request,) = consumer.take()
    consumer.answer(request, code, ext=ext)
    exchange.advance(10_000)
    assert pending
    assert consumer.closed is None
    assert consumer.heartbeat(consumer="CG", topics={"T": "*"}).code == 0


def test_answer_of_somebody_else_is_dropped(exchange: Exchange, consumer: Caller) -> None:
    pending = ask_info(exchange)
    (request,) = consumer.take()
    exchange.connect().answer(request, 0, body=b"forged")
    assert not pending
    consumer.answer(request, 0, body=b"true")
    assert pending.now.body == b"true"


def test_message_is_consumed_directly_by_one_consumer(exchange: Exchange, consumer: Caller) -> None:
    sent = exchange.connect().send("T", b"look at this")
    message_id = (sent.ext or {})["msgId"]
    operator = exchange.connect()
    ext = {"consumerGroup": "CG", "clientId": "c1", "msgId": message_id, "topic": "T"}
    pending = operator.begin(Request.CONSUME_MESSAGE_DIRECTLY, ext)
    (request,) = consumer.take()
    assert decode_record(request.body).body == b"look at this"
    consumer.answer(request, 0, body=b'{"consumeResult":"CR_SUCCESS"}')
    assert pending.now.body == b'{"consumeResult":"CR_SUCCESS"}'
    for bad in ("0" * 31 + "1", "nonsense"):
        assert operator.ask(Request.CONSUME_MESSAGE_DIRECTLY, ext | {"msgId": bad}).code == 1


def test_offsets_of_all_members_are_gathered(exchange: Exchange, consumer: Caller) -> None:
    other = exchange.connect("c2")
    other.heartbeat(consumer="CG", topics={"T": "*"})
    for member in (consumer, other):
        member.take()
    operator = exchange.connect()
    ext = {"topic": "T", "group": "CG"}
    pending = operator.begin(Request.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ext)
    table = b'{"messageQueueTable":{{"brokerName":"b","queueId":0,"topic":"T"}:5}}'
    (request,) = consumer.take()
    assert request.code == Request.GET_CONSUMER_STATUS_FROM_CLIENT
    consumer.answer(request, body=table)
    assert not pending
    exchange.advance(10_000)  # the other one does not answer
    body = fastjson.decode(pending.now.body)
    assert list(body["consumerTable"]) == ["c1"]
    (value,) = body["consumerTable"]["c1"].values()
    assert value == 5
    reply = operator.ask(Request.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ext | {"clientAddr": "c9"})
    assert fastjson.decode(reply.body)["consumerTable"] == {}
    reply = operator.ask(Request.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ext | {"group": "none"})
    assert (reply.code, reply.remark) == (1, "the consumer group[none] not online")


# -- request and reply ---------------------------------------------------------------------------


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
