"""Unmodified clients use what EscrowMQ has beyond RocketMQ by user properties alone."""

import time

import pytest

from .drivers import Driver
from .process import until
from .servers import Server
from .test_transactions import delivered


@pytest.fixture
def ours(server: Server) -> Server:
    if server.kind != "escrow":
        pytest.skip("the peer does not know these properties")
    return server


def test_end_of_one_message_ends_all_of_its_transaction(
    ours: Server, client: Driver, topic: str
) -> None:
    consumer = client.consumer(ours.nameserver, topic)
    producer = client.transaction_producer(ours.nameserver)
    joined = {"escrowTransaction": f"tx of {topic}"}
    for key in ("a", "b"):
        producer.transaction(topic, key, keys=key, outcome="UNKNOWN", properties=joined, checks=[])
    producer.transaction(topic, "c", keys="c", outcome="COMMIT", properties=joined)
    got = until("all three", lambda: delivered(consumer, 3))
    assert set(got) == {"a", "b", "c"}


def test_order_key_chooses_the_queue_in_the_order_of_commits(
    ours: Server, client: Driver, topic: str
) -> None:
    consumer = client.consumer(ours.nameserver, topic)
    producer = client.transaction_producer(ours.nameserver)
    keyed = {"escrowOrderKey": "customer 7"}
    for number in range(6):
        producer.transaction(topic, "m", keys=f"k{number}", outcome="COMMIT", properties=keyed)
    got = until("all six", lambda: delivered(consumer, 6))
    assert len({one.queue_id for one in got.values()}) == 1
    in_order = sorted(got.values(), key=lambda one: one.queue_offset)
    assert [one.keys for one in in_order] == [f"k{number}" for number in range(6)]


def test_delivery_time_of_a_transaction_is_kept(ours: Server, java: Driver, topic: str) -> None:
    consumer = java.consumer(ours.nameserver, topic)
    producer = java.transaction_producer(ours.nameserver)
    at_ms = int(time.time() * 1000) + 4_000
    producer.transaction(
        topic, "later", keys="l", outcome="COMMIT", properties={"escrowDelay": "true"},
        deliverMs=at_ms,
    )  # fmt: skip
    got = until("the message", lambda: delivered(consumer, 1))
    assert set(got) == {"l"}
    assert time.time() * 1000 >= at_ms - 1_000
