"""The testing kit's broker behind sockets, with clients in Java: faults and time as for ours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from escrowmq.testing import Broker

from . import jars
from .drivers import JavaDriver
from .process import until

MISSING = jars.missing_tools("java", "javac", "mvn")
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(bool(MISSING), reason=f"not on this machine: {MISSING}"),
]


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaDriver]:
    started = JavaDriver("5.3.3", tmp_path_factory.mktemp("driver"))
    yield started
    started.stop()


def test_a_lost_end_of_a_java_client_is_asked_for(
    escrowmq_server: Broker, java: JavaDriver
) -> None:
    escrowmq_server.create_topic("paid")
    nameserver = escrowmq_server.nameserver
    consumer = java.consumer(nameserver, "paid", consumeFromWhere="CONSUME_FROM_FIRST_OFFSET")
    producer = java.transaction_producer(nameserver)
    escrowmq_server.lose_next_end()
    producer.transaction("paid", "order 1", keys="o-1", outcome="COMMIT", checks=["COMMIT"])
    until("it is pending", lambda: escrowmq_server.pending("paid") == [b"order 1"])
    escrowmq_server.check_now()
    assert escrowmq_server.delivered("paid") == [b"order 1"]
    assert [one.keys for one in producer.checks(1)] == ["o-1"]
    assert [one.text for one in consumer.received(1)] == ["order 1"]
    escrowmq_server.wait_consumed(consumer.group)
    java.close_clients()


def test_a_delayed_message_of_a_java_client_comes_when_time_passes(
    escrowmq_server: Broker, java: JavaDriver
) -> None:
    escrowmq_server.create_topic("paid")
    java.producer(escrowmq_server.nameserver).send("paid", "order 1", delayLevel=14)
    assert escrowmq_server.delivered("paid") == []
    escrowmq_server.advance(minutes=10)
    assert escrowmq_server.delivered("paid") == [b"order 1"]
    java.close_clients()
