from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.message import StoredMessage
from escrowmq.base.reserved import RESERVED
from escrowmq.client.core.message import Message, snapshot_of, to_received_message
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.sending import (
    Compression,
    make_outgoing,
    properties_of,
    send_fields,
)
from escrowmq.client.core.validation import check_message
from escrowmq.codec.compression import compress
from escrowmq.codec.properties import parse_properties
from escrowmq.errors import (
    RemoteProtocolError,
)

NOW_MS = 1_700_000_000_000
words = st.text(st.characters(categories=["L", "N"]), min_size=1)


def test_a_snapshot_stays_as_it_is() -> None:
    body, keys, properties = bytearray(b"1"), ["k"], {"shop": "3"}
    seen = Message("T", body, "t", keys, properties, "o", 1, 2.0, 3.0, 4)  # type: ignore[arg-type]
    snapshot = snapshot_of(seen)
    assert snapshot == Message("T", b"1", "t", ["k"], {"shop": "3"}, "o", 1, 2.0, 3.0, 4)
    body[:], seen.topic = b"2", "U"
    keys.append("l")
    properties["shop"] = "4"
    assert (snapshot.topic, snapshot.body, snapshot.keys) == ("T", b"1", ["k"])
    assert snapshot.properties == {"shop": "3"}
    odd = Message("T", "not bytes", keys=5, properties=None)  # type: ignore[arg-type]
    assert snapshot_of(odd) == odd, "whoever checks it says what is wrong"


@given(words, st.lists(words), st.dictionaries(words, words), st.binary(min_size=1))
def test_a_message_comes_back_as_it_was_sent(
    tag: str, keys: list[str], properties: dict[str, str], body: bytes
) -> None:
    own = {name: value for name, value in properties.items() if name not in RESERVED}
    sent = Message("T", body, tag=tag, keys=keys, properties=own, order_key="o", flag=3)
    check_message(sent, body_size_max=1_000_000)
    out = make_outgoing(
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
    found = to_received_message(stored, topic="T", broker_name="b")
    assert (found.topic, found.body, found.tag, found.properties) == ("T", body, tag, own)
    assert (found.keys, found.order_key, found.flag) == (keys, "o", 3)
    assert (found.message_id, found.queue_offset, found.broker_name) == ("K", 7, "b")


def test_a_key_may_contain_any_blank_except_the_separator() -> None:
    """Received keys were split at any blank of Unicode, while a sender may use them in a key."""
    message = Message("T", b"1", keys=["Nord\u00a0GmbH", "a\tb"])
    check_message(message, body_size_max=9)
    stored = StoredMessage(
        topic="T", body=b"", properties={"KEYS": "Nord\u00a0GmbH a\tb "}, queue_offset=0,
        log_offset=0, stored_ms=0, record_size=0,
    )  # fmt: skip
    assert to_received_message(stored).keys == message.keys


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
    found = to_received_message(stored)
    assert found.message_id == found.offset_id == "0" * 30 + "10"
    assert (found.topic, found.body, found.transaction_id) == ("T", b"x" * 99, "TX")
    stored.properties = {"__transactionId__": "TX", "escrowTransaction": "of several"}
    assert to_received_message(stored).transaction_id == "of several"
    stored.body = packed[:-1]
    with pytest.raises(RemoteProtocolError):
        to_received_message(stored)
