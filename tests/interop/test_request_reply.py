"""Request-reply: a producer asks, a consumer answers, the broker carries the answer back."""

import pytest

from .drivers import ClientError, Driver
from .servers import Server

CLIENTS = ["java-5.3.3", "java-5.5.0", "java-4.9.8", "java-5.3.3-binary"]


@pytest.mark.parametrize("client", CLIENTS, indirect=True)
def test_reply_comes_back_to_the_one_who_asked(server: Server, client: Driver, topic: str) -> None:
    replier = client.producer(server.nameserver)
    consumer = client.consumer(server.nameserver, topic, reply_by=replier)
    requester = client.producer(server.nameserver)
    replies = [requester.request(topic, f"question {n}").text for n in range(3)]
    assert replies == [f"re: question {n}" for n in range(3)]
    (asked, *_) = consumer.received(3)
    assert asked.properties["REPLY_TO_CLIENT"] == requester.client_id


def test_request_without_an_answer_times_out(server: Server, java: Driver, topic: str) -> None:
    requester = java.producer(server.nameserver)
    with pytest.raises(ClientError) as raised:
        requester.request(topic, "anybody?", within_s=0.5)
    assert raised.value.kind == "RequestTimeoutException"
    assert raised.value.code == 10_006
