from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.message import Message, SysFlag
from escrowmq.codec.properties import decode_properties, encode_properties, parse_properties
from escrowmq.codec.record import (
    decode_record,
    decode_records,
    encode_filler,
    encode_message,
    encode_record,
    encode_records,
    read_size_and_magic,
)
from escrowmq.codec.record_layout import FILLER_SIZE, HEADS, HOSTS_V6, MAGIC_FILLER
from escrowmq.errors import CorruptRecord

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
WORD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1)
HOST = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
MESSAGES = st.builds(
    Message,
    topic=st.text("aé%|-", min_size=1, max_size=140).filter(lambda t: len(t.encode()) < 255),
    body=st.binary(max_size=200),
    queue_id=INT32,
    flag=INT32,
    properties=st.dictionaries(WORD, WORD, max_size=5),
    sys_flag=st.sampled_from([0, 1, 2, 8, 0x301]),
    born_ms=INT64,
    born_host=HOST,
    store_host=HOST,
    reconsume_times=INT32,
    prepared_log_offset=INT64,
)
NAMES = ("topic", "body", "queue_id", "flag", "properties", "born_ms", "born_host", "store_host",
         "reconsume_times", "prepared_log_offset")  # fmt: skip


@given(MESSAGES, st.lists(st.tuples(INT32, st.binary(max_size=50)), min_size=1, max_size=4))
def test_run_has_the_records_of_single_messages(
    message: Message, pairs: list[tuple[int, bytes]]
) -> None:
    properties = encode_properties(message.properties)
    pieces = [(flag, body, properties, message.properties) for flag, body in pairs]
    run = encode_records(message, pieces, queue_offset=4, log_offset=100, stored_ms=9)
    log_offset = 100
    for nth, ((flag, body), record) in enumerate(zip(pairs, run, strict=True)):
        alone = encode_record(
            msgspec.structs.replace(message, flag=flag, body=body),
            properties=properties,
            queue_offset=4 + nth,
            log_offset=log_offset,
            stored_ms=9,
        )
        assert record == alone
        log_offset += len(record)


def encode(message: Message, properties: bytes | None = None) -> bytes:
    if properties is None:
        properties = encode_properties(message.properties)
    return encode_record(
        message, properties=properties, queue_offset=4, log_offset=100, stored_ms=9
    )


@given(MESSAGES)
def test_message_is_the_same_after_its_record(message: Message) -> None:
    record = encode(message)
    found = decode_record(record, check_crc=True)
    assert {n: getattr(found, n) for n in NAMES} == {n: getattr(message, n) for n in NAMES}
    assert (found.queue_offset, found.log_offset, found.stored_ms, found.record_size) == (
        4, 100, 9, len(record),
    )  # fmt: skip
    hosts = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6
    assert found.sys_flag & ~hosts == message.sys_flag
    assert bool(found.sys_flag & SysFlag.BORN_HOST_V6) == (len(message.born_host) == 20)
    assert encode_message(found) == record


@given(st.lists(MESSAGES, max_size=4))
def test_records_of_a_pull_are_read_one_after_another(messages: list[Message]) -> None:
    found = decode_records(b"".join(map(encode, messages)))
    assert [m.body for m in found] == [m.body for m in messages]


@given(MESSAGES, st.data())
def test_cut_record_is_refused(message: Message, data: st.DataObject) -> None:
    record = encode(message)
    cut = data.draw(st.integers(0, len(record) - 1))
    with pytest.raises(CorruptRecord):
        decode_record(record[:cut])


@given(MESSAGES.filter(lambda m: m.body), st.data())
def test_flipped_bit_of_a_body_is_noticed(message: Message, data: st.DataObject) -> None:
    record = bytearray(encode(message))
    start = record.rindex(message.body, 0, 128 + len(message.body))
    at = HEADS[decode_record(bytes(record)).sys_flag & HOSTS_V6].size
    assert start >= 0
    at += data.draw(st.integers(0, len(message.body) - 1))
    record[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptRecord, match="CRC"):
        decode_record(bytes(record), check_crc=True)


def test_version_is_chosen_by_the_characters_of_the_topic() -> None:
    for topic, magic in (("t" * 127, 0xA7), ("t" * 128, 0xAB), ("é" * 127, 0xA7)):
        record = encode(Message(topic=topic, body=b"x"))
        assert record[7] == magic
        assert decode_record(record).topic == topic


def test_filler_says_how_much_is_left() -> None:
    assert len(encode_filler(500)) == FILLER_SIZE
    assert read_size_and_magic(encode_filler(500)) == (500, MAGIC_FILLER)
    with pytest.raises(CorruptRecord):
        decode_record(encode_filler(500).ljust(500, b"\0"))


# -- properties ----------------------------------------------------------------------------------


@given(st.dictionaries(WORD, WORD, max_size=8))
def test_properties_are_the_same_after_their_text(properties: dict[str, str]) -> None:
    encoded = encode_properties(properties)
    assert decode_properties(encoded) == properties
    assert encoded.endswith(b"\x02") or not properties


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("a\x01b", {"a": "b"}),
        ("a\x01b\x02a\x01c\x02", {"a": "c"}),
        ("a\x01\x02b\x02\x01c\x02d\x01e\x01f\x02", {"d": "e\x01f"}),
        ("\x02\x02a\x01b\x02\x02", {"a": "b"}),
    ],
)
def test_what_cannot_be_read_of_properties_is_passed_over(text: str, found: dict[str, str]) -> None:
    assert parse_properties(text) == found
