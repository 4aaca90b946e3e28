"""Delay levels and timer messages."""

import time

import pytest

from .drivers import ClientError, Driver
from .servers import Server

TIMERS = ["java-5.3.3", "java-5.5.0", "java-5.3.3-binary"]


def test_delay_levels_hold_a_message_back(server: Server, client: Driver, topic: str) -> None:
    consumer = client.consumer(server.nameserver, topic)
    producer = client.producer(server.nameserver)
    before_ms = time.time_ns() // 1_000_000
    producer.send(topic, "2 s", delayLevel=2, keys="k", tag="t", properties={"colour": "red"})
    producer.send(topic, "1 s", delayLevel=1)
    producer.send(topic, "now")
    got = {one.text: one for one in consumer.received(3)}
    assert set(got) == {"now", "1 s", "2 s"}
    late = got["2 s"]
    assert (late.topic, late.keys, late.tag) == (topic, "k", "t")
    assert late.properties["colour"] == "red"
    for text, delay_ms in (("now", 0), ("1 s", 1_000), ("2 s", 2_000)):
        assert delay_ms <= got[text].consumed_ms - before_ms < delay_ms + 5_000


def test_level_above_the_highest_is_the_highest(server: Server, java: Driver, topic: str) -> None:
    consumer = java.consumer(server.nameserver, topic)
    before_ms = time.time_ns() // 1_000_000
    java.producer(server.nameserver).send(topic, "late", delayLevel=99)
    (got,) = consumer.received(1)
    assert 3_000 <= got.consumed_ms - before_ms < 8_000


@pytest.mark.parametrize("client", TIMERS, indirect=True)
def test_timer_messages_arrive_at_their_time(server: Server, client: Driver, topic: str) -> None:
    consumer = client.consumer(server.nameserver, topic)
    producer = client.producer(server.nameserver)
    before_ms = time.time_ns() // 1_000_000
    producer.send(topic, "after 2.5 s", delayMs=2_500)
    producer.send(topic, "at a time", deliverMs=before_ms + 1_500)
    producer.send(topic, "in the past", deliverMs=before_ms - 1_000)
    got = {one.text: one.consumed_ms - before_ms for one in consumer.received(3)}
    assert got["in the past"] < 10_000
    # The wheel turns once a second and may be one second early (TIMER_OUT_MS is rounded down).
    assert 500 <= got["at a time"] < 5_000
    assert 1_500 <= got["after 2.5 s"] < 6_000


@pytest.mark.parametrize("java", ["java-5.3.3", "java-5.5.0"], indirect=True)
def test_recalled_timer_message_never_arrives(server: Server, java: Driver, topic: str) -> None:
    consumer = java.consumer(server.nameserver, topic)
    producer = java.producer(server.nameserver)
    unwanted = producer.send(topic, "unwanted", delayMs=4_000)
    producer.send(topic, "wanted", delayMs=5_000)
    assert unwanted.recall_handle
    assert producer.recall(topic, unwanted.recall_handle) == unwanted.msg_id
    assert [one.text for one in consumer.received(1)] == ["wanted"]


def test_timer_too_far_ahead_is_refused(server: Server, java: Driver, topic: str) -> None:
    producer = java.producer(server.nameserver)
    with pytest.raises(ClientError) as raised:
        producer.send(topic, "in four days", delayMs=4 * 24 * 3_600_000)
    assert raised.value.code == 13
