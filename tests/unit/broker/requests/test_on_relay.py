from __future__ import annotations

import pytest

from escrowmq.base.codes import Request
from escrowmq.codec import fastjson
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
    body = fastjson.decode_fastjson(pending.now.body)
    assert list(body["consumerTable"]) == ["c1"]
    (value,) = body["consumerTable"]["c1"].values()
    assert value == 5
    reply = operator.ask(Request.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ext | {"clientAddr": "c9"})
    assert fastjson.decode_fastjson(reply.body)["consumerTable"] == {}
    reply = operator.ask(Request.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ext | {"group": "none"})
    assert (reply.code, reply.remark) == (1, "the consumer group[none] not online")


@pytest.mark.parametrize("client", ['a"b', "a\\", '","x":{}, "'])
def test_offsets_of_a_member_with_an_odd_name_can_be_read(exchange: Exchange, client: str) -> None:
    """Its name was not escaped, so that nobody could read those of the other members either."""
    member, operator = exchange.connect(client), exchange.connect()
    member.heartbeat(consumer="CG", topics={"T": "*"})
    ext = {"topic": "T", "group": "CG"}
    pending = operator.begin(Request.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ext)
    request = member.take()[-1]
    assert request.code == Request.GET_CONSUMER_STATUS_FROM_CLIENT
    member.answer(request, body=b'{"messageQueueTable":{}}')
    assert list(fastjson.decode_fastjson(pending.now.body)["consumerTable"]) == [client]
