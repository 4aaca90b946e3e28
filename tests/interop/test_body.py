"""Bodies: compressed in three ways, read by every client; too large ones refused."""

from collections.abc import Callable

import pytest

from .drivers import ClientError, Driver, message
from .servers import Server

TEXT = b"a body that is worth compressing, said again and again. " * 400
FLAGS = {"ZLIB": 0x301, "LZ4": 0x101, "ZSTD": 0x201}


@pytest.mark.parametrize("kind", FLAGS)
@pytest.mark.parametrize("reader", ["java-5.3.3", "java-5.5.0", "java-4.9.8"])
def test_compressed_body_is_read_by_every_release_that_knows_it(
    server: Server,
    java: Driver,
    drivers: Callable[[str], Driver],
    topic: str,
    kind: str,
    reader: str,
) -> None:
    if reader == "java-4.9.8" and kind != "ZLIB":
        pytest.skip("4.9 knows zlib only")
    producer = java.producer(server.nameserver, compressType=kind)
    producer.send(topic, TEXT)
    other = drivers(reader)
    consumer = other.consumer(server.nameserver, topic)
    (got,) = consumer.received(1)
    consumer.close()
    assert got.body == TEXT
    # The listener of a new client sees the flag still set; the body is plain.
    assert got.sys_flag & 0x301 in {FLAGS[kind] & 0x301, 0, 0x300 & FLAGS[kind]}


def test_body_of_an_old_client_is_read_by_a_new_one(
    server: Server, drivers: Callable[[str], Driver], topic: str
) -> None:
    old, new = drivers("java-4.9.8"), drivers("java-5.5.0")
    old.producer(server.nameserver).send(topic, TEXT)
    assert new.consumer(server.nameserver, topic).received(1)[0].body == TEXT
    old.close_clients()
    new.close_clients()


def test_body_above_the_limit_of_the_broker_is_refused(
    server: Server, java: Driver, topic: str
) -> None:
    body = bytes(n * n * 7 % 253 for n in range(1_000)) * 4_300
    producer = java.producer(
        server.nameserver, maxMessageSize=8 << 20, compressMsgBodyOverHowmuch=16 << 20
    )
    with pytest.raises(ClientError) as raised:
        producer.send(topic, body)
    assert raised.value.code == 13


def test_big_batch_arrives_whole(server: Server, client: Driver, topic: str) -> None:
    consumer = client.consumer(server.nameserver, topic)
    producer = client.producer(server.nameserver)
    bodies = [bytes([n]) * 10_000 for n in range(100)]
    producer.send_batch([message(topic, body) for body in bodies])
    got = sorted(consumer.received(100), key=lambda one: one.queue_offset)
    assert [one.body for one in got] == bodies
