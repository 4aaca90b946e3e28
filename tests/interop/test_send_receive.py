"""Every client sends in every way, and receives what was sent."""

import pytest

from .drivers import Driver, message
from .servers import Server


def test_sync_send_is_received_as_sent(server: Server, client: Driver, topic: str) -> None:
    consumer = client.consumer(server.nameserver, topic)
    producer = client.producer(server.nameserver)
    sent = producer.send(
        topic, "grüße", tag="red", keys="k-1 k-2", properties={"colour": "bleu é", "n": "7"}
    )
    (got,) = consumer.received(1)
    assert sent.status == "SEND_OK"
    assert sent.broker == server.broker_name
    assert (got.topic, got.queue_id, got.queue_offset) == (topic, sent.queue_id, sent.queue_offset)
    assert (got.text, got.tag, got.keys) == ("grüße", "red", "k-1 k-2")
    assert (got.properties["colour"], got.properties["n"]) == ("bleu é", "7")
    assert got.msg_id == sent.msg_id
    assert got.offset_msg_id == sent.offset_msg_id
    assert got.properties["UNIQ_KEY"] == sent.msg_id
    assert got.reconsume_times == 0
    assert got.stored_ms >= got.born_ms - 1
    assert got.sys_flag == 0


def test_async_and_oneway_sends_arrive(server: Server, client: Driver, topic: str) -> None:
    consumer = client.consumer(server.nameserver, topic)
    producer = client.producer(server.nameserver)
    sent = producer.send(topic, "async", mode="async")
    producer.send_oneway(topic, "oneway")
    assert sent.status == "SEND_OK"
    assert {got.text for got in consumer.received(2)} == {"async", "oneway"}


def test_queue_offsets_grow_by_one_in_each_queue(
    server: Server, client: Driver, topic: str
) -> None:
    producer = client.producer(server.nameserver)
    offsets = [
        [producer.send(topic, f"{queue}-{n}", queueId=queue).queue_offset for n in range(3)]
        for queue in range(4)
    ]
    assert offsets == [[0, 1, 2]] * 4


def test_messages_with_one_sharding_key_share_a_queue(
    server: Server, client: Driver, topic: str
) -> None:
    producer = client.producer(server.nameserver)
    for key in ("a", "b", "c"):
        assert len({producer.send(topic, "x", hash=key).queue_id for _ in range(4)}) == 1


def test_batch_becomes_single_messages(server: Server, client: Driver, topic: str) -> None:
    consumer = client.consumer(server.nameserver, topic)
    producer = client.producer(server.nameserver)
    sent = producer.send_batch(
        [message(topic, f"b{n}", tag=f"t{n}", keys=f"key{n}") for n in range(5)]
    )
    got = sorted(consumer.received(5), key=lambda one: one.queue_offset)
    assert [(one.text, one.tag, one.keys) for one in got] == [
        (f"b{n}", f"t{n}", f"key{n}") for n in range(5)
    ]
    assert {one.queue_id for one in got} == {sent.queue_id}
    assert [one.queue_offset for one in got] == list(range(5))
    assert sent.queue_offset == 0


def test_listener_is_given_all_of_many_messages(server: Server, client: Driver, topic: str) -> None:
    consumer = client.consumer(server.nameserver, topic)
    producer = client.producer(server.nameserver)
    for n in range(200):
        producer.send(topic, f"m{n}")
    got = consumer.received(200)
    assert sorted(one.text for one in got) == sorted(f"m{n}" for n in range(200))


@pytest.mark.parametrize("size", [4_095, 4_096, 100_000, 4_000_000])
def test_bodies_of_any_size_arrive_whole(
    server: Server, client: Driver, topic: str, size: int
) -> None:
    body = bytes(n * n % 251 for n in range(1_000)) * (size // 1_000 + 1)
    consumer = client.consumer(server.nameserver, topic)
    client.producer(server.nameserver).send(topic, body[:size])
    (got,) = consumer.received(1)
    assert got.body == body[:size]
