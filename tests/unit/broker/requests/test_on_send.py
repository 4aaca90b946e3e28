from __future__ import annotations

import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import FAQ, Request
from escrowmq.base.command import Command
from escrowmq.base.message import NOT_SENDABLE
from escrowmq.codec.batch_body import encode_batch
from escrowmq.codec.ids import parse_offset_id
from escrowmq.codec.properties import encode_properties
from escrowmq.delivery.queue_locks import LockOwner
from tests.harness.exchange import SMALL, START_MS, Caller, Exchange


def ext_of(reply: Command) -> dict[str, str]:
    assert reply.ext is not None
    return reply.ext


@pytest.mark.parametrize("is_binary", [False, True])
def test_reply_to_a_send_names_place_and_unique_key(is_binary: bool) -> None:
    exchange = Exchange()
    producer = exchange.connect()
    producer.is_binary = is_binary
    producer.send("T", b"first")
    reply = producer.send("T", b"second", UNIQ_KEY="0123456789ABCDEF")
    assert (reply.code, reply.remark, reply.is_binary) == (0, None, is_binary)
    host, log_offset = parse_offset_id(ext_of(reply)["msgId"])
    assert (host, log_offset > 0) == (exchange.core.broker.identity.packed, True)
    assert {k: v for k, v in ext_of(reply).items() if k != "msgId"} == {
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "queueId": "0",
        "queueOffset": "1",
        "transactionId": "0123456789ABCDEF",
    }


def test_stored_message_is_what_was_sent_with_the_properties_that_the_broker_adds() -> None:
    exchange = Exchange()
    producer = exchange.connect(host="10.1.2.3")
    fields = {"h": "77", "j": "2", "f": str(0x1 | 0x30)}
    producer.send("T", b"body", fields=fields, TAGS="a", KEYS="k", POP_CK="gone", UNIQ_KEY="U1")
    (message,) = producer.messages("T")
    assert message.body == b"body"
    assert (message.flag, message.reconsume_times, message.sys_flag) == (77, 2, 1)
    assert (message.born_ms, message.stored_ms) == (START_MS, START_MS)
    assert message.born_host[:4] == bytes([10, 1, 2, 3])
    assert message.properties == {
        "TAGS": "a",
        "KEYS": "k",
        "UNIQ_KEY": "U1",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
    }


def test_message_without_unique_key_gets_one_that_the_reply_names() -> None:
    producer = Exchange().connect()
    keys = [ext_of(producer.send("T"))["transactionId"] for _ in range(3)]
    assert keys == [message.properties["UNIQ_KEY"] for message in producer.messages("T")]
    assert len(set(keys)) == 3


def test_first_form_of_the_header_is_understood_as_the_second_is() -> None:
    producer = Exchange().connect()
    ext = {
        "producerGroup": "PG", "topic": "T", "defaultTopic": "TBW102", "queueId": "1",
        "defaultTopicQueueNums": "2", "sysFlag": "0", "bornTimestamp": "5", "flag": "9",
        "properties": "TAGS\x01a\x02", "reconsumeTimes": "0", "unitMode": "false",
    }  # fmt: skip
    assert producer.ask(Request.SEND_MESSAGE, ext, b"x").code == 0
    (message,) = producer.messages("T", 1)
    assert (message.flag, message.born_ms, message.properties["TAGS"]) == (9, 5, "a")


def test_one_way_send_is_stored_and_not_answered() -> None:
    producer = Exchange().connect()
    assert not producer.begin_send("T", b"quiet", is_one_way=True)
    assert not producer.begin_send("T", b"", is_one_way=True)
    assert producer.bodies("T") == [b"quiet"]


def test_negative_queue_means_any_queue_and_the_reply_says_which() -> None:
    exchange = Exchange()
    exchange.create_topic("T", 4)
    producer = exchange.connect()
    chosen = [int(ext_of(producer.send("T", queue_id=-1))["queueId"]) for _ in range(40)]
    assert set(chosen) == {0, 1, 2, 3}
    assert [len(producer.bodies("T", q)) for q in range(4)] == [chosen.count(q) for q in range(4)]


# -- refusals ------------------------------------------------------------------------------------


def refused(reply: Command, code: int, remark: str) -> None:
    assert (reply.code, reply.remark) == (code, remark)
    assert reply.ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


ILLEGAL = "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"


@pytest.mark.parametrize(
    ("topic", "remark"),
    [
        ("", "The specified topic is blank."),
        ("  ", "The specified topic is blank."),
        ("a b", ILLEGAL),
        ("t" * 128, "The specified topic is longer than topic max length."),
    ],
)
def test_bad_topic_name_is_refused_with_29(topic: str, remark: str) -> None:
    refused(Exchange().connect().send(topic), 29, remark)


@pytest.mark.parametrize("topic", sorted(NOT_SENDABLE))
def test_topics_of_the_broker_are_forbidden_to_senders(topic: str) -> None:
    producer = Exchange().connect()
    refused(producer.send(topic), 16, f"Sending message to topic[{topic}] is forbidden.")


def test_unknown_topic_with_a_template_that_does_not_inherit_is_refused_with_17() -> None:
    producer = Exchange().connect()
    remark = f"topic[T] not exist, apply first please!{FAQ}"
    refused(producer.send("T", fields={"c": "BenchmarkTest"}), 17, remark)
    refused(producer.send("T", fields={"c": "nowhere"}), 17, remark)


def test_without_auto_creation_the_default_topic_creates_nothing() -> None:
    producer = Exchange(BrokerSettings(creates_topics=False)).connect()
    assert producer.send("T").code == 17
    assert producer.send("T", fields={"c": "DefaultCluster"}).code == 0


def test_queue_beyond_the_topic_is_refused_with_29() -> None:
    exchange = Exchange()
    exchange.create_topic("T", 2)
    producer = exchange.connect()
    reply = producer.send("T", queue_id=2)
    assert reply.code == 29
    assert (reply.remark or "").startswith("request queueId[2] is illegal, TopicConfig [")
    assert (reply.remark or "").endswith("Producer: 10.0.0.9:40002")


def test_order_topic_of_a_broker_without_write_permission_is_refused_with_16() -> None:
    exchange = Exchange(BrokerSettings(advertised_host="10.0.0.1"))
    exchange.create_topic("T", order="true")
    exchange.settings.permission = 4
    refused(exchange.connect().send("T"), 16, "the broker[10.0.0.1] sending message is forbidden")


def test_before_its_start_of_service_a_broker_refuses_with_1() -> None:
    producer = Exchange(BrokerSettings(accepts_sends_from_ms=START_MS + 1)).connect()
    reply = producer.send("T")
    assert (reply.code, reply.remark) == (1, f"broker unable to service, until {START_MS + 1} ms")


def test_empty_body_is_refused_with_1() -> None:
    assert Exchange().connect().send("T", b"").code == 1


def test_compacted_topic_wants_a_key() -> None:
    exchange = Exchange()
    exchange.create_topic("T", attributes="+cleanup.policy=COMPACTION")
    producer = exchange.connect()
    refused(producer.send("T"), 13, "Required message key is missing")
    assert producer.send("T", KEYS="k").code == 0


def test_body_over_the_limit_and_properties_over_the_limit_are_refused_with_13() -> None:
    exchange = Exchange()
    exchange.store_settings.body_size_max = 4_194_304
    producer = exchange.connect()
    remark = (
        "the message is illegal, maybe msg body or properties length not matched. "
        "msg body length limit 4194304B, msg properties length limit 32KB."
    )
    refused(producer.send("T", bytes(4_194_305)), 13, remark)
    refused(producer.send("T", KEYS="k" * 32_768), 13, remark)
    assert producer.bodies("T") == []


@pytest.mark.parametrize(("letter", "value"), [("e", "x"), ("g", "1.5"), ("f", "")])
def test_unparsable_number_in_the_second_form_is_answered_with_1(letter: str, value: str) -> None:
    assert Exchange().connect().send("T", fields={letter: value}).code == 1


def test_missing_topic_is_answered_with_1() -> None:
    assert Exchange().connect().ask(Request.SEND_MESSAGE_V2, {"e": "0"}, b"x").code == 1


@pytest.mark.parametrize("letter", ["g", "h", "e"])
def test_number_beyond_the_record_is_answered_with_1_and_nothing_is_stored(letter: str) -> None:
    producer = Exchange().connect()
    producer.send("T", b"before")
    number = "-1" + "0" * 30 if letter == "e" else "9" * 30
    reply = producer.send("T", b"bad", fields={letter: number})
    if letter != "e":  # any negative queue id asks for any queue
        assert reply.code == 1
    producer.send("T", b"after")
    assert producer.bodies("T")[0] == b"before"
    assert producer.bodies("T")[-1] == b"after"


# -- creation of topics --------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "given"), [(4, 4), (100, 8), (1, 1)])
def test_created_topic_has_the_queues_asked_for_but_no_more_than_its_template(
    asked: int, given: int
) -> None:
    exchange = Exchange()
    exchange.connect().send("T", fields={"d": str(asked)})
    config = exchange.core.broker.topics.get("T")
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (given, given, 6)


def test_negative_queue_count_makes_a_topic_without_queues() -> None:
    exchange = Exchange()
    producer = exchange.connect()
    assert producer.send("T", fields={"d": "-3"}).code == 29
    config = exchange.core.broker.topics.get("T")
    assert config is not None
    assert config.write_queue_nums == 0


def test_unit_mode_marks_the_created_topic() -> None:
    exchange = Exchange()
    exchange.connect().send("T", fields={"k": "true"})
    config = exchange.core.broker.topics.get("T")
    assert config is not None
    assert config.topic_sys_flag == 1


def test_created_topic_is_saved_before_its_sender_is_answered() -> None:
    exchange = Exchange()
    exchange.connect().send("T")
    assert b'"T"' in exchange.disk.small["config/topics.json"]


def test_multi_tag_topic_marks_its_messages() -> None:
    exchange = Exchange()
    exchange.create_topic("T", topicFilterType="MULTI_TAG")
    producer = exchange.connect()
    producer.send("T")
    assert producer.messages("T")[0].sys_flag == 2


# -- retry topics --------------------------------------------------------------------------------


def test_send_to_a_retry_topic_creates_it_with_one_queue() -> None:
    exchange = Exchange()
    producer = exchange.connect()
    assert producer.send("%RETRY%CG", b"again", fields={"c": "nowhere"}).code == 0
    assert producer.bodies("%RETRY%CG") == [b"again"]
    config = exchange.core.broker.topics.get("%RETRY%CG")
    assert config is not None
    assert (config.write_queue_nums, config.perm) == (1, 6)


def test_send_to_the_retry_topic_of_an_unknown_group_is_refused_with_26() -> None:
    producer = Exchange(BrokerSettings(creates_groups=False)).connect()
    refused(producer.send("%RETRY%CG"), 26, f"subscription group not exist, CG {FAQ}")


@pytest.mark.parametrize(("times", "topic"), [(16, "%RETRY%CG"), (17, "%DLQ%CG")])
def test_more_retries_than_the_group_allows_mean_dead_letter(times: int, topic: str) -> None:
    producer = Exchange().connect()
    assert producer.send("%RETRY%CG", b"again", fields={"j": str(times)}).code == 0
    assert producer.bodies(topic) == [b"again"]


@pytest.mark.parametrize(("version", "topic"), [(121, "%DLQ%CG"), (120, "%RETRY%CG")])
def test_maximum_of_the_request_counts_from_version_3_4_9_on(version: int, topic: str) -> None:
    producer = Exchange().connect()
    producer.version = version
    assert producer.send("%RETRY%CG", b"again", fields={"j": "3", "l": "2"}).code == 0
    assert producer.bodies(topic) == [b"again"]


def test_dead_letter_is_not_delayed() -> None:
    producer = Exchange().connect()
    assert producer.send("%RETRY%CG", fields={"j": "17"}, DELAY="3").code == 0
    assert len(producer.bodies("%DLQ%CG")) == 1


def test_group_that_holds_an_orderly_lock_sends_its_retries_to_the_dead_letters() -> None:
    exchange = Exchange()
    exchange.core.broker.locks.lock("CG", LockOwner("c"), "T", 0, exchange.now_ms)
    producer = exchange.connect()
    producer.send("%RETRY%CG", b"first")
    exchange.advance(60_001)
    producer.send("%RETRY%CG", b"second")
    assert producer.bodies("%DLQ%CG") == [b"first"]
    assert producer.bodies("%RETRY%CG") == [b"second"]


# -- batches -------------------------------------------------------------------------------------


def batch(producer: Caller, topic: str, *messages: tuple[bytes, dict[str, str]]) -> Command:
    body = encode_batch([(7, body, encode_properties(more)) for body, more in messages])
    ext = {"b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "m": "true"}
    return producer.ask(Request.SEND_BATCH_MESSAGE, ext | {"i": "UNIQ_KEY\x01B\x02"}, body)


def test_batch_is_stored_as_messages_of_their_own_and_the_reply_names_all() -> None:
    producer = Exchange().connect()
    reply = batch(producer, "T", (b"a", {"UNIQ_KEY": "A", "TAGS": "x"}), (b"b", {}), (b"c", {}))
    ids = ext_of(reply)["msgId"].split(",")
    messages = producer.messages("T")
    assert [m.body for m in messages] == [b"a", b"b", b"c"]
    assert [parse_offset_id(text)[1] for text in ids] == [m.log_offset for m in messages]
    assert (ext_of(reply)["queueOffset"], ext_of(reply)["transactionId"]) == ("0", "B")
    assert [m.flag for m in messages] == [7, 7, 7]
    assert messages[0].properties["UNIQ_KEY"] == "A"
    assert messages[0].properties["TAGS"] == "x"


def test_empty_batch_is_refused_with_13() -> None:
    assert batch(Exchange().connect(), "T").code == 13


def test_batch_for_a_retry_topic_is_refused_with_13() -> None:
    reply = batch(Exchange().connect(), "%RETRY%CG", (b"a", {}))
    refused(reply, 13, "batch request does not support retry group %RETRY%CG")


def test_batch_with_a_transactional_message_is_refused_with_13() -> None:
    producer = Exchange().connect()
    assert batch(producer, "T", (b"a", {}), (b"b", {"TRAN_MSG": "true", "PGROUP": "G"})).code == 13
    assert producer.bodies("T") == []


def test_batch_that_calls_itself_a_half_is_refused_with_13() -> None:
    producer = Exchange().connect()
    body = encode_batch([(0, b"a", b"")])
    for sys_flag in ("4", "-1", "2147483647"):
        ext = {"b": "T", "c": "TBW102", "d": "4", "e": "0", "f": sys_flag, "g": "1", "m": "true"}
        refused(
            producer.ask(Request.SEND_BATCH_MESSAGE, ext, body),
            13,
            "a batch cannot hold transactional messages; send them one by one",
        )
    assert producer.bodies("T") == []


def test_batch_that_is_cut_is_answered_with_1_and_nothing_is_stored() -> None:
    producer = Exchange().connect()
    body = encode_batch([(0, b"a", b""), (0, b"b", b"")])[:-3]
    ext = {"b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "m": "true"}
    assert producer.ask(Request.SEND_BATCH_MESSAGE, ext, body).code == 1
    assert producer.bodies("T") == []


# -- later, transactions -------------------------------------------------------------------------


def test_delayed_message_is_delivered_after_its_level() -> None:
    exchange = Exchange()
    producer = exchange.connect()
    assert producer.send("T", b"later", DELAY="1").code == 0
    assert producer.bodies("T") == []
    exchange.advance(1_100)
    assert producer.bodies("T") == [b"later"]


def test_timer_message_is_answered_with_a_recall_handle() -> None:
    exchange = Exchange()
    producer = exchange.connect()
    assert "recallHandle" in ext_of(producer.send("T", b"later", TIMER_DELAY_MS="5000"))
    exchange.advance(6_000)
    assert producer.bodies("T") == [b"later"]


def test_timer_message_beyond_the_limit_is_refused_with_13() -> None:
    reply = Exchange().connect().send("T", TIMER_DELAY_SEC="259201")
    assert reply.code == 13
    assert (reply.remark or "").startswith("timer message illegal, the delay time should not be")


def test_half_message_is_not_visible_and_its_reply_names_the_half_queue() -> None:
    exchange = Exchange()
    producer = exchange.connect()
    producer.send("T", b"plain")
    reply = producer.send("T", b"half", queue_id=3, TRAN_MSG="true", PGROUP="PG")
    assert (ext_of(reply)["queueId"], ext_of(reply)["queueOffset"]) == ("3", "0")
    assert producer.bodies("T", 3) == []


def test_half_message_without_producer_group_is_refused_with_13() -> None:
    assert Exchange().connect().send("T", TRAN_MSG="true").code == 13


def test_broker_that_rejects_transactions_answers_16() -> None:
    producer = Exchange(BrokerSettings(rejects_transactions=True)).connect()
    reply = producer.send("T", TRAN_MSG="true", PGROUP="PG")
    refused(reply, 16, "the broker[127.0.0.1] sending transaction message is forbidden")


def test_changed_trace_setting_is_in_the_next_reply_and_message() -> None:
    exchange = Exchange(store_settings=SMALL)
    producer = exchange.connect()
    producer.send("T")
    producer.ask(Request.UPDATE_BROKER_CONFIG, body=b"traceOn=false")
    assert ext_of(producer.send("T"))["TRACE_ON"] == "false"
    assert [m.properties["TRACE_ON"] for m in producer.messages("T")] == ["true", "false"]
