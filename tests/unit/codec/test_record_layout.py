"""Places of fields in a record are those at which the encoder puts them."""

from __future__ import annotations

import pytest

from escrowmq.base.message import Message, SysFlag
from escrowmq.codec.hashes import body_crc
from escrowmq.codec.record import encode_record
from escrowmq.codec.record_layout import (
    BORN_HOST_AT,
    BORN_MS_AT,
    CRC_AT,
    FLAG_AT,
    HEAD_V4,
    HEADS,
    HOSTS_V6,
    LOG_OFFSET_AT,
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    PLACED,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    RECORD_SIZE_MIN,
    SYS_FLAG_AT,
    topic_size_width,
)

V4, V6 = bytes([127, 0, 0, 1, 0, 0, 42, 159]), bytes(range(16)) + bytes([0, 0, 1, 2])
BODY = b"the body"


def record_of(born_host: bytes, store_host: bytes, topic: str = "t") -> bytes:
    message = Message(
        topic=topic, body=BODY, queue_id=3, flag=4, sys_flag=8, born_ms=5, born_host=born_host,
        store_host=store_host, reconsume_times=6, prepared_log_offset=7,
    )  # fmt: skip
    return encode_record(
        message, properties=b"a\x01b\x02", queue_offset=8, log_offset=9, stored_ms=10
    )


@pytest.mark.parametrize("born_host", [V4, V6])
@pytest.mark.parametrize("store_host", [V4, V6])
def test_each_field_is_at_its_place_whatever_the_hosts(born_host: bytes, store_host: bytes) -> None:
    record = record_of(born_host, store_host)
    flags = (SysFlag.BORN_HOST_V6 if born_host is V6 else 0) | (
        SysFlag.STORE_HOST_V6 if store_host is V6 else 0
    )
    head = HEADS[flags]

    def number(at: int, size: int) -> int:
        return int.from_bytes(record[at : at + size], "big")

    assert number(0, 4) == len(record)
    assert number(MAGIC_AT, 4) == MAGIC_V1
    assert number(CRC_AT, 4) == body_crc(BODY)
    assert number(QUEUE_ID_AT, 4) == 3
    assert number(FLAG_AT, 4) == 4
    assert number(QUEUE_OFFSET_AT, 8) == 8
    assert number(LOG_OFFSET_AT, 8) == 9
    assert number(SYS_FLAG_AT, 4) == 8 | flags
    assert number(BORN_MS_AT, 8) == 5
    assert record[BORN_HOST_AT : head.stored_at] == born_host
    assert number(head.stored_at, 8) == 10
    assert record[head.store_host_at : head.reconsume_times_at] == store_host
    assert number(head.reconsume_times_at, 4) == 6
    assert number(head.prepared_at, 8) == 7
    assert number(head.body_size_at, 4) == len(BODY)
    assert record[head.size : head.size + len(BODY)] == BODY
    assert PLACED.unpack_from(record) == (len(record), MAGIC_V1, 9, 8 | flags)
    walked = head.walked.unpack_from(record)
    assert walked == (len(record), MAGIC_V1, body_crc(BODY), 3, 8, 9, 8 | flags, 10, len(BODY))
    place = head.place.unpack_from(record, QUEUE_OFFSET_AT)
    assert place == (8, 9, 8 | flags, 5, born_host, 10)
    assert max(HEADS) == HOSTS_V6


def test_the_smallest_record_has_a_head_and_two_sizes() -> None:
    message = Message(topic="", body=b"", born_host=V4, store_host=V4)
    record = encode_record(message, properties=b"", queue_offset=0, log_offset=0, stored_ms=0)
    assert len(record) == RECORD_SIZE_MIN == HEAD_V4.size + 3


def test_a_long_topic_has_a_wider_size() -> None:
    record = record_of(V4, V4, topic="t" * 200)
    at = HEAD_V4.size + len(BODY)
    assert topic_size_width(MAGIC_V1) == 1
    width = topic_size_width(MAGIC_V2)
    assert int.from_bytes(record[at : at + width], "big") == 200
    assert int.from_bytes(record[MAGIC_AT:CRC_AT], "big") == MAGIC_V2
