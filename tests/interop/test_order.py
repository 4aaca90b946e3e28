"""Order within a queue, and broadcasting."""

import pytest

from .drivers import Driver
from .servers import Server


def test_orderly_consumer_sees_each_queue_in_order(
    server: Server, client: Driver, topic: str
) -> None:
    producer = client.producer(server.nameserver)
    for n in range(40):
        producer.send(topic, f"{n}", queueId=n % 4)
    consumer = client.consumer(server.nameserver, topic, is_orderly=True)
    got = consumer.received(40)
    for queue in range(4):
        assert [int(one.text) for one in got if one.queue_id == queue] == list(range(queue, 40, 4))


def test_failing_message_holds_its_queue_and_no_other(
    server: Server, client: Driver, topic: str
) -> None:
    producer = client.producer(server.nameserver)
    for n in range(6):
        producer.send(topic, f"{n}", keys=f"k{n}", queueId=n % 2)
    consumer = client.consumer(server.nameserver, topic, is_orderly=True, failures={"k0": 2})
    got = consumer.received(8)
    assert [one.text for one in got if one.queue_id == 0] == ["0", "0", "0", "2", "4"]
    assert [one.text for one in got if one.queue_id == 1] == ["1", "3", "5"]


def test_broadcast_reaches_every_consumer_of_the_group(
    server: Server, client: Driver, topic: str
) -> None:
    producer = client.producer(server.nameserver)
    consumers = [
        client.consumer(server.nameserver, topic, group="CG-all", messageModel="BROADCASTING")
        for _ in range(2)
    ]
    for n in range(6):
        producer.send(topic, f"{n}")
    for consumer in consumers:
        assert sorted(got.text for got in consumer.received(6)) == [str(n) for n in range(6)]


@pytest.mark.parametrize("java", ["java-5.3.3", "java-4.9.8"], indirect=True)
def test_orderly_message_that_never_succeeds_reaches_the_dead_letters(
    server: Server, java: Driver, topic: str
) -> None:
    producer = java.producer(server.nameserver)
    for n in range(2):
        producer.send(topic, f"{n}", keys=f"k{n}", queueId=0)
    consumer = java.consumer(
        server.nameserver,
        topic,
        is_orderly=True,
        failures={"k0": 99},
        maxReconsumeTimes=1,
        suspendCurrentQueueTimeMillis=100,
    )
    got = consumer.received(3)
    assert [one.text for one in got] == ["0", "0", "1"]
    dead = java.consumer(server.nameserver, f"%DLQ%{consumer.group}")
    (letter,) = dead.received(1)
    assert letter.text == "0"
