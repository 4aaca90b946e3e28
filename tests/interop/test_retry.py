"""Failed messages come back, later and counted, and end among the dead letters."""

import itertools

from . import wire
from .drivers import Driver
from .process import until
from .servers import Server


def test_failed_message_comes_back_with_its_count(
    server: Server, client: Driver, topic: str
) -> None:
    consumer = client.consumer(server.nameserver, topic, failures={"bad": 2})
    producer = client.producer(server.nameserver)
    sent = producer.send(topic, "bad", keys="bad", tag="t", properties={"colour": "red"})
    producer.send(topic, "good", keys="good")
    got = consumer.received(4)
    bad = [one for one in got if one.keys == "bad"]
    assert [one.reconsume_times for one in bad] == [0, 1, 2]
    assert [one.topic for one in bad] == [topic] * 3
    assert {one.msg_id for one in bad} == {sent.msg_id}
    assert {(one.body, one.tag, one.properties["colour"]) for one in bad} == {(b"bad", "t", "red")}
    assert bad[1].properties["RETRY_TOPIC"] == topic
    assert bad[1].properties["ORIGIN_MESSAGE_ID"] == bad[0].offset_msg_id
    for earlier, later in itertools.pairwise(bad):
        assert later.consumed_ms - earlier.consumed_ms >= 990  # levels 3 and 4 are one second here


def test_message_that_never_succeeds_becomes_a_dead_letter(
    server: Server, client: Driver, topic: str
) -> None:
    consumer = client.consumer(server.nameserver, topic, failures={"bad": 99}, maxReconsumeTimes=1)
    client.producer(server.nameserver).send(topic, "bad", keys="bad")
    assert [one.reconsume_times for one in consumer.received(2)] == [0, 1]
    letters = {"topic": f"%DLQ%{consumer.group}"}  # the Go client does not start without a route
    until("a route", lambda: wire.ask(server.nameserver, 105, letters).code == 0)
    dead = client.consumer(server.nameserver, f"%DLQ%{consumer.group}")
    (letter,) = dead.received(1)
    assert letter.text == "bad"
    assert letter.properties["RETRY_TOPIC"] == topic
    assert len(consumer.received()) == 2


def test_listener_may_choose_the_delay_of_its_retry(
    server: Server, java: Driver, topic: str
) -> None:
    consumer = java.consumer(server.nameserver, topic, failures={"bad": 1}, retry_level=2)
    java.producer(server.nameserver).send(topic, "bad", keys="bad")
    first, second = consumer.received(2)
    assert second.consumed_ms - first.consumed_ms >= 1_990, "all other levels are shorter"


def test_negative_delay_level_goes_to_the_dead_letters_at_once(
    server: Server, java: Driver, topic: str
) -> None:
    consumer = java.consumer(server.nameserver, topic, failures={"bad": 9}, retry_level=-1)
    java.producer(server.nameserver).send(topic, "bad", keys="bad")
    consumer.received(1)
    dead = java.consumer(server.nameserver, f"%DLQ%{consumer.group}")
    assert dead.received(1)[0].text == "bad"
    assert len(consumer.received()) == 1


def test_retry_survives_the_consumer_that_failed(server: Server, java: Driver, topic: str) -> None:
    first = java.consumer(server.nameserver, topic, failures={"bad": 9})
    java.producer(server.nameserver).send(topic, "bad", keys="bad")
    first.received(1)
    first.close(wait=True)
    second = java.consumer(server.nameserver, topic, group=first.group)
    until("the retry", lambda: [one for one in second.received() if one.keys == "bad"])
