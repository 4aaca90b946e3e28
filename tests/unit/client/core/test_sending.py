from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.command import Command
from escrowmq.client.core.end_request import (
    half_of,
)
from escrowmq.client.core.message import KEYS_SEPARATOR, Message
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.sending import (
    Compression,
    Outgoing,
    encode,
    outgoing,
    outgoing_bare,
    properties_of,
    result_of,
    send_fields,
)
from escrowmq.codec.properties import parse_properties
from escrowmq.errors import (
    InvalidMessage,
    RemoteProtocolError,
)


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


def test_an_answer_that_lacks_what_it_must_have_is_the_peers_fault() -> None:
    queue = MessageQueue("T", "b", 0)
    out = Outgoing(topic="T", body=b"x", properties="", unique_key="K", born_ms=0)
    for ext in (None, {}, {"queueId": "x", "queueOffset": "1", "msgId": "m"}):
        with pytest.raises(RemoteProtocolError, match="lacks"):
            result_of(Command(ext=ext), queue, out, topic="T")
        with pytest.raises(RemoteProtocolError, match="lacks"):
            half_of(Command(ext=ext), broker_name="b", topic="T", group="g", unique_key="K")


@pytest.mark.parametrize("size", [1, 100, 5_000])
@pytest.mark.parametrize("form", ["zlib", ""])
def test_a_bare_message_goes_out_as_any_other_would(size: int, form: str) -> None:
    message = Message("T", b"x" * size, flag=3)
    how = {"topic": "ns%T", "compression": Compression(form=form), "born_ms": 7}
    bare = outgoing_bare(message, unique_key="K", **how)  # type: ignore[arg-type]
    assert bare == outgoing(message, properties_of(message, unique_key="K"), **how)  # type: ignore[arg-type]


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
    assert outgoing_bare(message, topic="T", **how) is None  # type: ignore[arg-type]
    assert outgoing_bare(Message("T", b"x"), topic="%RETRY%g", **how) is None  # type: ignore[arg-type]
