"""POP mode: the broker shares out messages one by one."""

import pytest

from .drivers import JavaDriver, unique
from .process import until
from .servers import Server

pytestmark = pytest.mark.parametrize("java", ["java-5.3.3", "java-5.5.0"], indirect=True)


def test_pop_consumers_share_one_queue(server: Server, java: JavaDriver, topic: str) -> None:
    group = pop_group(server, java, topic)
    consumers = [
        java.consumer(server.nameserver, topic, group=group, clientRebalance=False)
        for _ in range(2)
    ]
    producer = java.producer(server.nameserver)

    def is_shared() -> bool:
        producer.send(topic, "x", queueId=0)
        return all(consumer.received() for consumer in consumers)

    until("both consumers are given messages of one queue", is_shared)


def test_failed_pop_message_comes_back(server: Server, java: JavaDriver, topic: str) -> None:
    group = pop_group(server, java, topic)
    consumer = java.consumer(
        server.nameserver, topic, group=group, clientRebalance=False, failures={"bad": 1}
    )
    producer = java.producer(server.nameserver)
    producer.send(topic, "bad", keys="bad")
    got = consumer.received(2, within_s=60)
    assert [one.text for one in got] == ["bad", "bad"]
    assert got[1].reconsume_times == 1


def pop_group(server: Server, java: JavaDriver, topic: str) -> str:
    group = unique("CG")
    printed = java.mqadmin(
        *("setConsumeMode", "-n", server.nameserver, "-c", "DefaultCluster"),
        *("-t", topic, "-g", group, "-m", "POP", "-q", "8"),
    )
    assert "success" in printed
    return group
