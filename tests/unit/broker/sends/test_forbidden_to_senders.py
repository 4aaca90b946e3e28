"""What a sender may not say: marks that only the broker, an operator, or a consumer of the group
may set are taken off or refused at every request that stores."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.base.fixed_limits import MESSAGE_KEYS_MAX
from escrowmq.base.message import Topic
from escrowmq.base.own_properties import DELAYED, REDONE
from escrowmq.broker.sends.forbidden_to_senders import EXAMINED_PROPERTIES, group_fault
from escrowmq.codec.batch_body import encode_batch
from escrowmq.codec.properties import encode_properties
from escrowmq.codec.recall_handle import RecallHandle, encode_recall_handle
from tests.harness.exchange import COMMIT, START_MS, Caller, Exchange

TAKEN_OFF = sorted(EXAMINED_PROPERTIES - {"TIMER_DEL_UNIQKEY"})
PLAIN = {"TAGS": "a", "KEYS": "k", "own": "word"}


@pytest.fixture(name="exchange")
def make_exchange() -> Exchange:
    exchange = Exchange()
    exchange.create_topic("T", 1)
    return exchange


def send_batch(caller: Caller, properties: dict[str, str], *, sys_flag: str = "0") -> int:
    ext = {"b": "T", "c": "TBW102", "d": "4", "e": "0", "f": sys_flag, "g": "1", "m": "true"}
    body = encode_batch([(0, b"body", encode_properties(properties))])
    return caller.ask(Request.SEND_BATCH_MESSAGE, ext, body).code


def reply(
    caller: Caller, topic: str, properties: dict[str, str], *, code: int = 325, sys_flag: str = "0"
) -> int:
    text = encode_properties({"REPLY_TO_CLIENT": caller.client_id, **properties}).decode()
    if code == Request.SEND_REPLY_MESSAGE_V2:
        ext = {"a": "PG", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": sys_flag, "g": "5",
               "h": "0", "i": text}  # fmt: skip
    else:
        ext = {"producerGroup": "PG", "topic": topic, "queueId": "0", "sysFlag": sys_flag,
               "bornTimestamp": "5", "flag": "0", "properties": text}  # fmt: skip
    pending = caller.begin(code, ext, b"body")
    for push in caller.take():
        assert not set(text_of(push.ext or {})) & EXAMINED_PROPERTIES
        caller.answer(push)
    return pending.now.code


def text_of(ext: dict[str, str]) -> list[str]:
    return [entry.partition("\x01")[0] for entry in ext["properties"].split("\x02")]


def kept(caller: Caller, topic: str = "T") -> set[str]:
    (message,) = caller.messages(topic)
    return set(message.properties) & EXAMINED_PROPERTIES


def old_send(caller: Caller, topic: str, properties: dict[str, str]) -> int:
    """The request of the oldest clients, with whole words for its fields."""
    ext = {"producerGroup": "PG", "topic": topic, "defaultTopic": "TBW102", "queueId": "0",
           "defaultTopicQueueNums": "4", "sysFlag": "0", "bornTimestamp": "5", "flag": "0",
           "properties": encode_properties(properties).decode()}  # fmt: skip
    return caller.ask(Request.SEND_MESSAGE, ext, b"body").code


# -- properties ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TAKEN_OFF)
def test_marks_of_the_broker_are_taken_off_whatever_request_brings_them(name: str) -> None:
    for way in ("310", "10", "320", "324", "325"):
        exchange = Exchange()
        exchange.create_topic("T", 1)
        caller = exchange.connect()
        caller.heartbeat(producer="PG")
        said: dict[str, Any] = {**PLAIN, name: "1"}
        if way == "310":
            assert caller.send("T", **said).code == 0
        elif way == "10":
            assert old_send(caller, "T", said) == 0
        elif way == "320":
            assert send_batch(caller, said) == 0
        else:
            assert reply(caller, "T", said, code=int(way)) == 0
        (message,) = caller.messages("T")
        assert not message.properties.keys() & EXAMINED_PROPERTIES, way
        assert {key: message.properties[key] for key in PLAIN} == PLAIN


def test_a_half_keeps_no_mark_of_its_sender_and_has_those_of_the_broker(
    exchange: Exchange,
) -> None:
    caller = exchange.connect()
    said: dict[str, Any] = dict.fromkeys(TAKEN_OFF, "9")
    half = caller.prepare("T", b"paid", **said)
    assert caller.end(half, COMMIT).code == 0
    (message,) = caller.messages("T")
    assert kept(caller) == {"REAL_TOPIC", "REAL_QID", DELAYED}, "a delay is its sender's to set"
    assert (message.properties["REAL_TOPIC"], message.properties["REAL_QID"]) == ("T", "0")


def test_no_sender_has_a_delayed_message_dropped(exchange: Exchange) -> None:
    owner, other = exchange.connect(), exchange.connect()
    due = str(START_MS + 5_000)
    owner.send("T", b"theirs", UNIQ_KEY="K1", TIMER_DELIVER_MS=due)
    exchange.create_topic("U", 1)
    order = {"TIMER_DEL_UNIQKEY": "T+K1", "TIMER_DELIVER_MS": due}
    refused = other.send("U", b"0", **order)
    assert refused.code == 13
    assert "recall the message by the handle" in (refused.remark or "")
    assert old_send(other, "U", order) == 13
    assert send_batch(other, order) == 13
    assert reply(other, "U", order) == 13
    exchange.advance(10_000)
    assert owner.bodies("T") == [b"theirs"]
    assert other.bodies("U") == []


def test_a_message_that_was_delayed_once_and_is_sent_on_does_not_wait_again(
    exchange: Exchange,
) -> None:
    caller = exchange.connect()
    caller.send("T", b"first", TIMER_DELAY_SEC="2")
    exchange.advance(3_000)
    (message,) = caller.messages("T")
    exchange.create_topic("U", 1)
    assert caller.send("U", b"again", **message.properties).code == 0
    assert caller.bodies("U") == [b"again"]


def test_a_consumer_that_sends_back_keeps_its_marks_and_no_one_elses() -> None:
    exchange = Exchange()
    caller = exchange.connect()
    caller.heartbeat(consumer="CG", topics={"T": "*"})
    marks = {"RETRY_TOPIC": "T", "RECONSUME_TIME": "1", "ORIGIN_MESSAGE_ID": "ID"}
    said = {**dict.fromkeys(EXAMINED_PROPERTIES, "9"), **marks, "DELAY": "1"}
    assert caller.send("%RETRY%CG", b"again", fields={"j": "1", "l": "16"}, **said).code == 0
    exchange.advance(2_000)
    (message,) = caller.messages("%RETRY%CG")
    assert {name: message.properties[name] for name in marks} == marks
    assert message.properties["REAL_TOPIC"] == "%RETRY%CG"
    kept = {*marks, "escrowDeadLetter", "REAL_TOPIC", "REAL_QID"}
    assert message.properties.keys() & EXAMINED_PROPERTIES == kept


def test_a_plain_message_does_not_tell_consumers_of_another_topic(exchange: Exchange) -> None:
    caller = exchange.connect()
    caller.heartbeat(consumer="CG", topics={"T": "*"})
    sent = caller.send("T", RETRY_TOPIC="of-another")
    offset = str(int((sent.ext or {})["msgId"][-16:], 16))
    ext = {"offset": offset, "group": "CG", "delayLevel": "1", "originMsgId": "x"}
    assert caller.ask(Request.CONSUMER_SEND_MSG_BACK, ext).code == 0
    exchange.advance(2_000)
    (again,) = caller.messages("%RETRY%CG")
    assert again.properties["RETRY_TOPIC"] == "T"


# -- flags ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "stored"),
    [("1", 1), ("257", 257), ("769", 769), ("8", 0), ("48", 0), ("192", 0), ("1073741824", 0)],
)
def test_flags_of_the_broker_are_cleared_and_those_of_clients_stay(
    exchange: Exchange, said: str, stored: int
) -> None:
    caller = exchange.connect()
    caller.heartbeat(producer="PG")
    assert caller.send("T", fields={"f": said}).code == 0
    assert send_batch(caller, {}, sys_flag=said) == 0
    assert reply(caller, "T", {}, sys_flag=said) == 0
    assert [message.sys_flag for message in caller.messages("T")] == [stored] * 3


@pytest.mark.parametrize("said", ["4", "12"])
def test_what_is_no_half_cannot_be_hidden(exchange: Exchange, said: str) -> None:
    caller = exchange.connect()
    refused = caller.send("T", fields={"f": said})
    assert refused.code == 13
    assert "TRAN_MSG" in (refused.remark or "")
    assert caller.bodies("T") == []


def test_a_consumers_old_client_that_sends_a_committed_message_back_is_served() -> None:
    """It does not clear TRAN_MSG, and so the flag says that the message is a half."""
    exchange = Exchange()
    caller = exchange.connect()
    caller.heartbeat(consumer="CG", topics={"T": "*"})
    fields = {"j": "1", "f": "4"}
    sent = caller.send("%RETRY%CG", b"x", fields=fields, TRAN_MSG="true", PGROUP="P", DELAY="1")
    assert sent.code == 0
    exchange.advance(2_000)
    assert caller.bodies("%RETRY%CG") == [b"x"]


@pytest.mark.parametrize("kind", range(4, 8))
def test_a_compression_that_no_client_knows_is_refused(exchange: Exchange, kind: int) -> None:
    caller = exchange.connect()
    said = str(1 | kind << 8)
    half: dict[str, Any] = {"TRAN_MSG": "true", "PGROUP": "PG"}
    for properties in ({}, half):
        refused = caller.send("T", fields={"f": said}, **properties)
        assert refused.code == 13
        assert f"compression type {kind}" in (refused.remark or "")
    assert send_batch(caller, {}, sys_flag=said) == 13


# -- topics --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "topic",
    [Topic.HALF, Topic.OP, Topic.SCHEDULE, Topic.TIMER, "rmq_sys_REVIVE_LOG_DefaultCluster"],
)
def test_nothing_is_stored_in_the_brokers_own_topics_by_a_reply_or_a_recall(topic: str) -> None:
    exchange = Exchange(BrokerSettings(allows_recall=True))
    caller = exchange.connect()
    caller.heartbeat(producer="PG")
    before = exchange.core.broker.store.end_offset
    for code in (324, 325):
        assert reply(caller, topic, {}, code=code) == 16
    handle = RecallHandle(
        topic=topic,
        broker_name=exchange.settings.name,
        deliver_ms=exchange.now_ms + 10_000,
        unique_key="K",
    )
    ext = {"topic": topic, "recallHandle": encode_recall_handle(handle), "producerGroup": "PG"}
    assert caller.ask(Request.RECALL_MESSAGE, ext).code == 16
    assert exchange.core.broker.store.end_offset == before


# -- names ---------------------------------------------------------------------------------------


def test_a_producer_groups_name_is_judged_whole() -> None:
    assert group_fault("orders.€-group") == ""
    assert "256 characters; 255 are allowed" in group_fault("g" * 256)
    for letter in "\n\r\x1b\x00\x7f\u2028\u202e":
        assert "cannot be printed" in group_fault("g" * 200 + letter)


BAD_GROUPS = ["g" * 100 + "/../../x", "g" * 100 + "\nline", "g" * 100 + "\x1b[31m", "g/h"]


@pytest.mark.parametrize("name", BAD_GROUPS)
def test_a_consumer_group_is_not_made_under_a_name_that_is_none_at_its_end(
    exchange: Exchange, name: str
) -> None:
    caller = exchange.connect()
    assert caller.heartbeat(consumer=name, topics={"T": "*"}).code == 0
    assert caller.send("%RETRY%" + name, fields={"j": "1"}).code != 0
    broker = exchange.core.broker
    assert name not in broker.groups.names()
    assert not any(name in topic for topic in broker.topics.names())


def test_a_consumer_group_may_have_a_long_name(exchange: Exchange) -> None:
    caller = exchange.connect()
    assert caller.heartbeat(consumer="g" * 255, topics={"T": "*"}).code == 0
    assert "g" * 255 in exchange.core.broker.groups.names()


def test_names_that_cannot_be_printed_are_not_taken_from_producers(exchange: Exchange) -> None:
    caller = exchange.connect("a client\nand a line")
    assert "cannot be printed" in (caller.heartbeat(producer="PG").remark or "")
    caller = exchange.connect()
    assert "cannot be printed" in (caller.heartbeat(producer="PG\nx").remark or "")
    for names in ({"PGROUP": "P\x1b"}, {"PGROUP": "P", "escrowTransaction": "a\nb"}):
        said: dict[str, Any] = {"TRAN_MSG": "true", **names}
        refused = caller.send("T", **said)
        assert refused.code == 13
        assert "printed" in (refused.remark or "")


def test_message_with_more_keys_than_are_allowed_is_refused_alone_as_a_half_and_in_a_batch(
    exchange: Exchange,
) -> None:
    caller = exchange.connect()
    most = " ".join(["k"] * MESSAGE_KEYS_MAX)
    assert caller.send("T", KEYS=most).code == 0
    assert send_batch(caller, PLAIN | {"KEYS": most}) == 0
    refusal = caller.send("T", KEYS=most + " k")
    assert refusal.code == 13
    assert f"{MESSAGE_KEYS_MAX + 1} keys, {MESSAGE_KEYS_MAX} are allowed" in (refusal.remark or "")
    assert caller.send("T", KEYS=most + " k", TRAN_MSG="true", PGROUP="PG").code == 13
    assert send_batch(caller, PLAIN | {"KEYS": most + " k"}) == 13
    assert len(caller.messages("T")) == 2


# -- messages of transactions that are stored again ------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "host", "keeps"),
    [
        ("loopback", "127.0.0.1", True),
        ("loopback", "10.0.0.9", False),
        ("everybody", "10.0.0.9", True),
        ("nobody", "127.0.0.1", False),
    ],
)
def test_only_who_may_settle_transactions_marks_a_message_as_stored_again(
    setting: Any, host: str, keeps: bool
) -> None:
    exchange = Exchange(BrokerSettings(admin_from=setting))
    exchange.create_topic("T", 1)
    caller = exchange.connect(host=host)
    assert caller.send("T", escrowRedone="true", escrowDelay="true").code == 0
    assert kept(caller) == ({REDONE} if keeps else set())
    half = caller.prepare("T", b"paid", escrowRedone="true")
    assert caller.end(half, COMMIT).code == 0
    assert REDONE not in caller.messages("T")[1].properties


def test_a_delayed_half_keeps_its_delay_and_a_forwarded_message_does_not(
    exchange: Exchange,
) -> None:
    caller = exchange.connect()
    half = caller.prepare("T", b"paid", escrowDelay="true", TIMER_DELAY_MS="1000")
    assert caller.end(half, COMMIT).code == 0
    exchange.advance(3_000)
    (message,) = caller.messages("T")
    assert message.properties["escrowDelay"] == "true"
    assert caller.send("T", b"forwarded", escrowDelay="true").code == 0
    assert "escrowDelay" not in caller.messages("T")[1].properties
