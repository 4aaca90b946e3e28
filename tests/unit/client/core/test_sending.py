from __future__ import annotations

import datetime as dt
import enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.base.message import KEYS_SEPARATOR
from escrowmq.base.own_properties import WANTS_SAFETY
from escrowmq.client.core.end_request import (
    parse_half,
)
from escrowmq.client.core.message import Message
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.sending import (
    Compression,
    OutgoingMessage,
    SendResult,
    SendStatus,
    delay_properties,
    encode_properties,
    make_bare_outgoing,
    make_outgoing,
    parse_send_result,
    properties_of,
    send_fields,
    split_batch_result,
)
from escrowmq.codec.properties import parse_properties
from escrowmq.errors import (
    InvalidMessage,
    RemoteProtocolError,
)


@given(st.dictionaries(st.text(), st.text()))
def test_properties_are_encoded_whole_or_refused(properties: dict[str, str]) -> None:
    try:
        text = encode_properties(properties)
    except InvalidMessage:
        assert any({"\x01", "\x02"} & set(name + value) for name, value in properties.items())
    else:
        whole = {name: value for name, value in properties.items() if name and value}
        assert parse_properties(text) == whole


def test_a_message_sent_back_by_a_consumer_tells_its_count_in_the_header() -> None:
    properties = {"RECONSUME_TIME": "3", "MAX_RECONSUME_TIMES": "16", "UNIQ_KEY": "K"}
    out = make_outgoing(
        Message("x", b"x"),
        properties,
        topic="%RETRY%G",
        compression=Compression(form=""),
        born_ms=0,
    )
    fields = send_fields(out, MessageQueue("%RETRY%G", "b", 0), group="PG")
    assert (fields["j"], fields["l"]) == ("3", "16")
    assert out.properties == "UNIQ_KEY\x01K\x02"


def test_a_send_asks_how_safe_the_message_is_if_its_producer_wants_to_know() -> None:
    out = OutgoingMessage(topic="T", body=b"x", properties="", unique_key="K", born_ms=0)
    queue = MessageQueue("T", "b", 0)
    assert send_fields(out, queue, group="PG", asks_safety=True)[WANTS_SAFETY] == "true"
    assert WANTS_SAFETY not in send_fields(out, queue, group="PG")


def test_a_key_is_one_word_however_it_is_given() -> None:
    assert Message("T", b"x", keys="one").key_list == ["one"]
    assert KEYS_SEPARATOR == " "


def test_an_answer_that_lacks_what_it_must_have_is_the_peers_fault() -> None:
    queue = MessageQueue("T", "b", 0)
    out = OutgoingMessage(topic="T", body=b"x", properties="", unique_key="K", born_ms=0)
    for ext in (None, {}, {"queueId": "x", "queueOffset": "1", "msgId": "m"}):
        with pytest.raises(RemoteProtocolError, match="lacks"):
            parse_send_result(Command(ext=ext), queue, out, topic="T")
        with pytest.raises(RemoteProtocolError, match="lacks"):
            parse_half(Command(ext=ext), broker_name="b", topic="T", group="g", unique_key="K")


@pytest.mark.parametrize("size", [1, 99, 100, 5_000])
@pytest.mark.parametrize("form", ["zlib", ""])
def test_a_bare_message_goes_out_as_any_other_would(size: int, form: str) -> None:
    message = Message("T", b"x" * size, flag=3)
    compression = Compression(form=form, over_size=100)
    how = {"topic": "ns%T", "compression": compression, "born_ms": 7}
    bare = make_bare_outgoing(message, unique_key="K", **how)  # type: ignore[arg-type]
    assert bare == make_outgoing(message, properties_of(message, unique_key="K"), **how)  # type: ignore[arg-type]
    assert bare is not None
    assert bool(bare.sys_flag) == (size >= 100 and form == "zlib")


@pytest.mark.parametrize(
    "fields",
    [
        {"tag": "a"}, {"keys": ["k"]}, {"keys": "k"}, {"properties": {"a": "b"}},
        {"order_key": "k"}, {"delay": 0}, {"delay_level": 1}, {"deliver_at": 5.0},
    ],
)  # fmt: skip
def test_a_message_with_anything_beside_its_body_is_not_bare(fields: dict[str, Any]) -> None:
    message = Message("T", b"x", **fields)
    how = {"unique_key": "K", "compression": Compression(), "born_ms": 7}
    assert make_bare_outgoing(message, topic="T", **how) is None  # type: ignore[arg-type]
    assert make_bare_outgoing(Message("T", b"x"), topic="%RETRY%g", **how) is None  # type: ignore[arg-type]


def test_a_request_has_the_code_of_what_it_is() -> None:
    out = OutgoingMessage(topic="T", body=b"", properties="", unique_key="", born_ms=0)
    assert out.request_code == Request.SEND_MESSAGE_V2
    out.is_reply = True
    assert out.request_code == Request.SEND_REPLY_MESSAGE_V2
    out.is_reply, out.is_batch = False, True
    assert out.request_code == Request.SEND_BATCH_MESSAGE


def test_an_order_key_goes_with_the_message() -> None:
    keyed = properties_of(Message("T", b"x", order_key="k"), unique_key="K")
    assert keyed["__SHARDINGKEY"] == "k"
    assert "__SHARDINGKEY" not in properties_of(Message("T", b"x"), unique_key="K")


MOMENT = dt.datetime(2024, 5, 6, 7, 8, 9, 500_000, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {}),
        ({"delay_level": 3}, {"DELAY": "3"}),
        ({"delay": 0}, {"TIMER_DELAY_MS": "0"}),
        ({"delay": 1.5}, {"TIMER_DELAY_MS": "1500"}),
        ({"delay": dt.timedelta(minutes=1)}, {"TIMER_DELAY_MS": "60000"}),
        ({"deliver_at": 1.25}, {"TIMER_DELIVER_MS": "1250"}),
        ({"deliver_at": MOMENT}, {"TIMER_DELIVER_MS": "1714979289500"}),
    ],
)
def test_a_delay_is_written_as_the_broker_wants_it(
    fields: dict[str, Any], expected: dict[str, str]
) -> None:
    assert delay_properties(Message("T", b"x", **fields)) == expected


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"delay": -0.001}, "0 seconds or more"),
        ({"delay": dt.timedelta(seconds=-1)}, "0 seconds or more"),
        ({"deliver_at": MOMENT.replace(tzinfo=None)}, "has no time zone"),
    ],
)
def test_a_delay_that_cannot_be_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidMessage, match=said):
        delay_properties(Message("T", b"x", **fields))


@pytest.mark.parametrize(
    ("offset_ids", "expected"),
    [("m1,m2", ["m1", "m2"]), ("m", ["m", "m"]), ("m1,m2,m3", ["m1,m2,m3", "m1,m2,m3"])],
)
def test_each_message_of_a_batch_has_its_place(offset_ids: str, expected: list[str]) -> None:
    whole = SendResult(
        status=SendStatus.OK, message_id="K", queue=MessageQueue("T", "b", 1), offset=7,
        offset_id=offset_ids,
    )  # fmt: skip
    one, two = split_batch_result(whole, ["k1", "k2"])
    assert [one.offset_id, two.offset_id] == expected
    assert (one.message_id, one.offset, two.message_id, two.offset) == ("k1", 7, "k2", 8)


class Word(str, enum.Enum):  # noqa: UP042 - what programs have, since before there was StrEnum
    TAG = "red"
    KEY = "o-1"
    ORDER = "customer 7"
    NAME = "shop"


def test_texts_of_an_enum_are_sent_as_their_values() -> None:
    """Tags and properties were sent as `Word.TAG`, which no subscription to the tag has matched."""
    message = Message(
        "T", b"x", tag=Word.TAG, keys=[Word.KEY], order_key=Word.ORDER,
        properties={Word.NAME: Word.KEY},
    )  # fmt: skip
    found = parse_properties(encode_properties(properties_of(message, unique_key="U")))
    assert found == {
        "TAGS": "red", "KEYS": "o-1", "__SHARDINGKEY": "customer 7", "shop": "o-1", "WAIT": "true",
        "UNIQ_KEY": "U",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["delay", "deliver_at"])
@pytest.mark.parametrize("time", ["5", "x", [], float("nan"), float("inf"), -float("inf"), 1e30])
def test_a_time_that_no_broker_can_read_is_refused(name: str, time: Any) -> None:
    """Some raised ValueError or OverflowError, from a client all of whose errors are its own; and
    a year as a text was taken for that many seconds since the epoch."""
    with pytest.raises(InvalidMessage, match=f"{name}=.*a number of seconds, is expected"):
        delay_properties(Message("T", b"x", **{name: time}))
