from __future__ import annotations

import msgspec
import pytest

from escrowmq.base.message import Property, StoredMessage
from escrowmq.delivery.revive_records import (
    ACK_TAG,
    BATCH_ACK_TAG,
    AckBody,
    CheckPointBody,
    CheckPointKey,
    encode_ack,
    encode_check_point,
    redelivery_copy,
    revive_queue,
)

# Captured from Apache RocketMQ 5.3.3 (a pop of two messages, not acknowledged).
CHECK_POINT = (
    b'{"bm":0,"bn":"broker-a","c":"GG","d":[0,1],"it":15000,"n":2,"pt":1795246692580,"q":0,'
    b'"reviveTime":1795246707580,"ro":0,"so":1,"t":"TX"}'
)
HANDLE = CheckPointKey("GG", "TX", 0, 1, 1795246692580, 3)


def test_a_check_point_is_the_peers_byte_for_byte() -> None:
    body = encode_check_point(HANDLE, [1, 2], invisible_ms=15_000, broker_name="broker-a")
    assert body == CHECK_POINT
    assert msgspec.json.encode(msgspec.json.decode(body, type=CheckPointBody)) == CHECK_POINT


def test_acks_are_the_peers() -> None:
    tag, body = encode_ack(HANDLE, [1], broker_name="broker-a")
    assert tag == ACK_TAG
    assert body == b'{"ao":1,"bn":"broker-a","c":"GG","pt":1795246692580,"q":0,"so":1,"t":"TX"}'
    assert msgspec.json.decode(body, type=AckBody).offsets() == [1]
    tag, body = encode_ack(HANDLE, [1, 2], broker_name="broker-a")
    assert tag == BATCH_ACK_TAG
    assert msgspec.json.decode(body, type=AckBody).offsets() == [1, 2]


@pytest.mark.parametrize(
    ("invisible_ms", "queues_count", "queue"),
    [(0, 8, 0), (10_000, 8, 0), (10_001, 8, 1), (60_000, 8, 2), (43_200_000, 8, 7), (99_999, 2, 1)],
)
def test_like_spans_share_a_revive_queue(invisible_ms: int, queues_count: int, queue: int) -> None:
    assert revive_queue(invisible_ms, queues_count) == queue


def source(topic: str, times: int = 0) -> StoredMessage:
    return StoredMessage(
        topic=topic, body=b"b", queue_id=3, flag=5, properties={"KEYS": "k"}, sys_flag=8, born_ms=7,
        queue_offset=1, log_offset=2, stored_ms=3, record_size=4,
        reconsume_times=times,
    )  # fmt: skip


def test_a_message_comes_again_as_it_was() -> None:
    message = redelivery_copy(source("TX"), HANDLE, host=b"12345678", is_v2=False)
    assert (message.topic, message.queue_id, message.reconsume_times) == ("%RETRY%GG_TX", 0, 1)
    assert (message.body, message.flag, message.sys_flag, message.born_ms) == (b"b", 5, 8, 7)
    assert message.properties == {"KEYS": "k", Property.FIRST_POP_TIME: "1795246692580"}
    assert message.born_host == message.store_host == b"12345678"
    assert (
        redelivery_copy(source("TX"), HANDLE, host=b"12345678", is_v2=True).topic == "%RETRY%GG+TX"
    )


def test_the_first_pop_time_stays_and_retry_topics_feed_themselves() -> None:
    once = source("%RETRY%GG_TX", 1)
    once.properties[Property.FIRST_POP_TIME] = "9"
    message = redelivery_copy(once, HANDLE, host=b"12345678", is_v2=True)
    assert (message.topic, message.reconsume_times) == ("%RETRY%GG_TX", 2)
    assert message.properties[Property.FIRST_POP_TIME] == "9"
