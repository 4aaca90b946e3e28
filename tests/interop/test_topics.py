"""Topics: created on first use, or refused; permissions."""

from collections.abc import Callable

import pytest

from .drivers import ClientError, Driver, JavaDriver, unique
from .servers import Server, new_topic


def test_unknown_topic_is_created_by_the_first_send(server: Server, client: Driver) -> None:
    topic = unique("auto")
    producer = client.producer(server.nameserver)
    sent = producer.send(topic, "first")
    assert sent.status == "SEND_OK"
    assert client.consumer(server.nameserver, topic).received(1)[0].text == "first"


def test_without_automatic_creation_there_is_no_route(
    strict_server: Server, client: Driver
) -> None:
    producer = client.producer(strict_server.nameserver)
    with pytest.raises(ClientError) as raised:
        producer.send(unique("unknown"), "x")
    assert any(
        words in raised.value.text
        for words in ("No route info of this topic", "route info not found")  # Java, Go
    )
    assert raised.value.code in (10_005, None)  # the Go client has no codes


@pytest.fixture(scope="module")
def strict_server(server_factory: Callable[..., Server]) -> Server:
    return server_factory(autoCreateTopicEnable=False, autoCreateSubscriptionGroup=False)


def test_unknown_group_is_refused_without_automatic_creation(
    strict_server: Server, java: JavaDriver
) -> None:
    topic = new_topic(strict_server, unique("T"))
    puller = java.puller(strict_server.nameserver)
    with pytest.raises(ClientError) as raised:
        puller.pull(topic, broker=strict_server.broker_name, queue_id=0, offset=0)
    assert raised.value.code == 26


def test_queue_count_is_what_the_topic_was_created_with(server: Server, java: Driver) -> None:
    topic = new_topic(server, unique("T"), queues=7)
    assert java.producer(server.nameserver).queues(topic) == list(range(7))


def test_topic_without_write_permission_cannot_be_sent_to(server: Server, java: Driver) -> None:
    topic = new_topic(server, unique("T"), perm=4)
    with pytest.raises(ClientError):
        java.producer(server.nameserver).send(topic, "x")


def test_system_topic_cannot_be_sent_to(server: Server, java: Driver) -> None:
    with pytest.raises(ClientError) as raised:
        java.producer(server.nameserver).send("RMQ_SYS_TRANS_HALF_TOPIC", "x")
    assert "forbidden" in raised.value.text
