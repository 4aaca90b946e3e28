from __future__ import annotations

import datetime as dt
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.command import Command
from escrowmq.base.message import StoredMessage
from escrowmq.base.reserved import RESERVED
from escrowmq.client.consumer_settings import ConsumerOptions
from escrowmq.client.core.addresses import parse_addresses, split_address
from escrowmq.client.core.ending import (
    Half,
    end_fields,
    half_of,
    half_of_token,
    judge_end,
    token_of,
)
from escrowmq.client.core.message import KEYS_SEPARATOR, Message, received
from escrowmq.client.core.namespace import unwrap, wrap
from escrowmq.client.core.retry import STORED, Step, after_failure, after_reply
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.sending import (
    Compression,
    Outcome,
    Outgoing,
    encode,
    outgoing,
    properties_of,
    result_of,
    send_fields,
)
from escrowmq.client.core.unique import UniqueIds
from escrowmq.client.core.validation import check_message
from escrowmq.codec.compression import compress
from escrowmq.codec.properties import parse_properties
from escrowmq.errors import (
    BrokerBusy,
    ConnectionLost,
    InvalidMessage,
    MessageRefused,
    OutcomeContradicted,
    RemoteProtocolError,
    UsageError,
)

NOW_MS = 1_700_000_000_000
words = st.text(st.characters(categories=["L", "N"]), min_size=1)
names = st.from_regex(r"[a-zA-Z0-9_-]{1,20}", fullmatch=True)


# -- ids -----------------------------------------------------------------------------------------


def test_ids_of_another_month_are_other_ids_at_the_same_count() -> None:
    made = set()
    for month in range(1, 13):
        ids = UniqueIds(host="10.1.2.3", process=1, mark=1)
        start = dt.datetime(2026, month, 5).astimezone()
        made |= {ids.make(int(start.timestamp() * 1000)) for _ in range(100)}
    assert len(made) == 1200


@given(st.integers(0, 4_000_000_000_000))
def test_ids_have_the_peers_form_and_never_come_twice(now_ms: int) -> None:
    ids = UniqueIds(host="10.1.2.3", process=0x12345, mark=0xABCDEF01)
    made = [ids.make(now_ms) for _ in range(300)]
    assert len(set(made)) == 300
    assert all(re.fullmatch(r"0A0102032345[0-9A-F]{20}", each) for each in made)


def test_an_id_tells_the_time_since_its_month_began() -> None:
    ids = UniqueIds(host="::ffff:1.2.3.4", process=1, mark=2)
    begun = dt.datetime(2024, 12, 1).astimezone()
    at_ms = int(begun.timestamp() * 1000)
    assert ids.make(at_ms)[20:28] == "00000000"
    assert ids.make(at_ms + 5)[20:28] == "00000005"
    assert ids.make(at_ms - 1)[20:28] == f"{30 * 86_400_000 - 1:08X}"
    year = dt.datetime(2025, 1, 1).astimezone()
    assert ids.make(int(year.timestamp() * 1000))[20:28] == "00000000"


# -- namespaces ----------------------------------------------------------------------------------


@given(names, names, st.sampled_from(["", "%RETRY%", "%DLQ%"]))
def test_a_namespace_comes_off_as_it_went_on(name: str, namespace: str, prefix: str) -> None:
    wrapped = wrap(prefix + name, namespace)
    assert wrapped == f"{prefix}{namespace}%{name}" or wrapped == name
    assert unwrap(wrapped, namespace) == prefix + name
    assert wrap(wrapped, namespace) == wrapped


def test_names_of_the_system_stay_as_they_are() -> None:
    for name in ("TBW102", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_wheel_timer", "CID_RMQ_SYS_TRANS"):
        assert wrap(name, "ns") == name
    assert wrap("T", "") == unwrap("T", "") == "T"


# -- messages ------------------------------------------------------------------------------------


@given(words, st.lists(words), st.dictionaries(words, words), st.binary(min_size=1))
def test_a_message_comes_back_as_it_was_sent(
    tag: str, keys: list[str], properties: dict[str, str], body: bytes
) -> None:
    own = {name: value for name, value in properties.items() if name not in RESERVED}
    sent = Message("T", body, tag=tag, keys=keys, properties=own, order_key="o", flag=3)
    check_message(sent, body_size_max=1_000_000)
    out = outgoing(
        sent,
        properties_of(sent, unique_key="K"),
        topic="ns%T",
        compression=Compression(over_size=5),
        born_ms=NOW_MS,
    )
    fields = send_fields(out, MessageQueue("ns%T", "b", 2), group="PG")
    assert (fields["b"], fields["e"], fields["g"]) == ("ns%T", "2", str(NOW_MS))
    stored = StoredMessage(
        topic="ns%T",
        body=out.body,
        flag=out.flag,
        sys_flag=out.sys_flag,
        properties=parse_properties(out.properties),
        queue_offset=7,
        log_offset=8,
        stored_ms=9,
        record_size=0,
    )
    found = received(stored, topic="T", broker_name="b")
    assert (found.topic, found.body, found.tag, found.properties) == ("T", body, tag, own)
    assert (found.keys, found.order_key, found.flag) == (keys, "o", 3)
    assert (found.message_id, found.queue_offset, found.broker_name) == ("K", 7, "b")


def test_a_message_without_unique_key_is_named_by_its_place() -> None:
    packed, flag = compress(b"x" * 99, form="zlib", level=5)
    stored = StoredMessage(
        topic="T",
        body=packed,
        sys_flag=flag,
        properties={"__transactionId__": "TX"},
        queue_offset=0,
        log_offset=16,
        stored_ms=0,
        record_size=0,
    )
    found = received(stored)
    assert found.message_id == found.offset_id == "0" * 30 + "10"
    assert (found.topic, found.body, found.transaction_id) == ("T", b"x" * 99, "TX")
    stored.body = packed[:-1]
    with pytest.raises(RemoteProtocolError):
        received(stored)


@given(st.dictionaries(st.text(), st.text()))
def test_properties_are_encoded_whole_or_refused(properties: dict[str, str]) -> None:
    try:
        text = encode(properties)
    except InvalidMessage:
        assert any({"\x01", "\x02"} & set(name + value) for name, value in properties.items())
    else:
        whole = {name: value for name, value in properties.items() if name and value}
        assert parse_properties(text) == whole


def test_a_message_sent_back_by_a_consumer_tells_its_count_in_the_header() -> None:
    properties = {"RECONSUME_TIME": "3", "MAX_RECONSUME_TIMES": "16", "UNIQ_KEY": "K"}
    out = outgoing(
        Message("x", b"x"),
        properties,
        topic="%RETRY%G",
        compression=Compression(form=""),
        born_ms=0,
    )
    fields = send_fields(out, MessageQueue("%RETRY%G", "b", 0), group="PG")
    assert (fields["j"], fields["l"]) == ("3", "16")
    assert out.properties == "UNIQ_KEY\x01K\x02"


def test_a_key_is_one_word_however_it_is_given() -> None:
    assert Message("T", b"x", keys="one").key_list == ["one"]
    assert KEYS_SEPARATOR == " "


# -- answers -------------------------------------------------------------------------------------


def test_an_answer_that_lacks_what_it_must_have_is_the_peers_fault() -> None:
    queue = MessageQueue("T", "b", 0)
    out = Outgoing(topic="T", body=b"x", properties="", unique_key="K", born_ms=0)
    for ext in (None, {}, {"queueId": "x", "queueOffset": "1", "msgId": "m"}):
        with pytest.raises(RemoteProtocolError, match="lacks"):
            result_of(Command(ext=ext), queue, out, topic="T")
        with pytest.raises(RemoteProtocolError, match="lacks"):
            half_of(Command(ext=ext), broker_name="b", topic="T", group="g", unique_key="K")


def test_steps_after_answers_and_failures() -> None:
    assert {0, 10, 11, 12} == STORED
    assert after_reply(0, retries_unsafe=True) is Step.DONE
    assert after_reply(10, retries_unsafe=False) is Step.DONE
    assert after_reply(10, retries_unsafe=True) is Step.AGAIN
    assert after_reply(2, retries_unsafe=False) is Step.AGAIN
    assert after_reply(13, retries_unsafe=False) is Step.GIVE_UP
    lost = ConnectionLost("gone")
    assert after_failure(lost, may_repeat=True) is Step.AGAIN
    assert after_failure(lost, may_repeat=False) is Step.GIVE_UP
    assert after_failure(BrokerBusy(), may_repeat=False) is Step.AGAIN, "it was not stored"
    assert after_failure(MessageRefused(), may_repeat=True) is Step.GIVE_UP
    assert after_failure(KeyError(), may_repeat=True) is Step.GIVE_UP


halves = st.builds(
    Half,
    broker_name=st.text(),
    topic=st.text(),
    group=st.text(),
    unique_key=st.text(),
    log_offset=st.integers(0, 2**63 - 1),
    queue_offset=st.integers(0, 2**63 - 1),
    signed_id=st.just(""),
)


@given(halves)
def test_an_id_of_our_own_says_all_that_an_end_needs(half: Half) -> None:
    if len(token_of(half)) < 2048:
        assert half_of_token(token_of(half)) == half
        assert "escrowId" not in end_fields(half, Outcome.COMMIT)


@given(st.text() | st.binary())
def test_whatever_is_no_id_is_refused(token: object) -> None:
    try:
        found = half_of_token(token)
    except UsageError:
        return
    assert found.signed_id == token


def test_ends_are_judged_by_what_was_asked_for() -> None:
    for code in (200, 201, 202):
        error = judge_end(Command(code=code), Outcome.COMMIT, address="h:1")
        assert isinstance(error, OutcomeContradicted)
    assert judge_end(Command(code=0), Outcome.COMMIT, address="h:1") is None
    assert isinstance(judge_end(Command(code=2), Outcome.COMMIT, address="h:1"), BrokerBusy)


# -- addresses -----------------------------------------------------------------------------------


def test_addresses_in_every_spelling() -> None:
    assert parse_addresses("a:1;b:2") == parse_addresses("a:1, b:2") == ("a:1", "b:2")
    assert parse_addresses(["http://a:1", "a:1"]) == ("a:1",)
    assert split_address("[::1]:9876") == ("::1", 9876)


@pytest.mark.parametrize("given", [9876, ["a:1", 5], b"a:1"])
def test_addresses_are_texts(given: Any) -> None:
    with pytest.raises(UsageError, match="'host:port', or a list of these, is expected"):
        parse_addresses(given)


@pytest.mark.parametrize("fields", [{"tag": 5}, {"order_key": 7}, {"topic": ["T"]}])
def test_what_is_no_text_is_refused_before_it_is_sent(fields: dict[str, Any]) -> None:
    message = Message(**{"topic": "T", "body": b"x", **fields})
    with pytest.raises(InvalidMessage):
        check_message(message, body_size_max=10)


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(InvalidMessage, match=r"make one with escrowmq\.Message"):
        check_message(b"x", body_size_max=10)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings", [{"topic": "T", "tags": ["a"]}, {"topic": "T", "sql": 5}, {"queues": ["q"]}]
)
def test_what_a_consumer_cannot_read_is_refused_at_once(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="is expected"):
        ConsumerOptions(**settings)
