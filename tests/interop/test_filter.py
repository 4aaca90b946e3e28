"""Tags and SQL92: a consumer is given what it asked for, nothing else."""

import pytest

from .drivers import ClientError, Driver
from .servers import Server

JAVA = ["java-5.3.3", "java-5.5.0", "java-4.9.8", "java-5.3.3-binary"]
COLOURS = ["red", "green", "blue", "red", "green"]


def send_colours(server: Server, client: Driver, topic: str) -> None:
    producer = client.producer(server.nameserver)
    for n, colour in enumerate(COLOURS):
        producer.send(topic, f"{n}", tag=colour, properties={"n": str(n), "word": f"w{n}"})


def test_consumer_of_some_tags_is_given_only_those(
    server: Server, client: Driver, topic: str
) -> None:
    send_colours(server, client, topic)
    consumer = client.consumer(server.nameserver, topic, expression="red || blue")
    everything = client.consumer(server.nameserver, topic)
    assert sorted(got.text for got in consumer.received(3)) == ["0", "2", "3"]
    everything.received(5)
    assert len(consumer.received()) == 3


def test_tags_whose_hashes_collide_are_told_apart(server: Server, java: Driver, topic: str) -> None:
    producer = java.producer(server.nameserver)
    assert java_hash("Aa") == java_hash("BB")
    for tag in ("BB", "Aa"):
        producer.send(topic, tag, tag=tag, queueId=0)
    consumer = java.consumer(server.nameserver, topic, expression="Aa")
    everything = java.consumer(server.nameserver, topic)
    everything.received(2)
    assert [got.text for got in consumer.received(1)] == ["Aa"]


@pytest.mark.parametrize("client", JAVA, indirect=True)
@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("n > 1 AND n <= 3", ["2", "3"]),
        ("TAGS = 'red' OR word IN ('w1', 'w2')", ["0", "1", "2", "3"]),
    ],
)
def test_sql_consumer_is_given_what_its_expression_accepts(
    server: Server, client: Driver, topic: str, expression: str, wanted: list[str]
) -> None:
    send_colours(server, client, topic)
    consumer = client.consumer(server.nameserver, topic, expression=expression, is_sql=True)
    assert sorted(got.text for got in consumer.received(len(wanted))) == wanted


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("n BETWEEN 1 AND 2", ["1", "2"]),
        ("n NOT BETWEEN 1 AND 3", ["0", "4"]),
        ("missing IS NULL AND n >= 4", ["4"]),
        ("word IS NOT NULL AND NOT (n = 0)", ["1", "2", "3", "4"]),
        ("word <> 'w0' AND n < 2", ["1"]),
    ],
)
def test_sql_operators(
    server: Server, java: Driver, topic: str, expression: str, wanted: list[str]
) -> None:
    send_colours(server, java, topic)
    consumer = java.consumer(server.nameserver, topic, expression=expression, is_sql=True)
    assert sorted(got.text for got in consumer.received(len(wanted))) == wanted


def test_bad_sql_is_refused_when_the_consumer_starts(
    server: Server, java: Driver, topic: str
) -> None:
    with pytest.raises(ClientError) as raised:
        java.consumer(server.nameserver, topic, expression="n > > 1", is_sql=True)
    assert raised.value.code == 23


def java_hash(text: str) -> int:
    total = 0
    for char in text:
        total = (total * 31 + ord(char)) & 0xFFFFFFFF
    return total
