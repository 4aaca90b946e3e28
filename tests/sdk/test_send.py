"""Producers at a real broker, both faces."""

import asyncio
import datetime as dt
import threading
from typing import Any

import pytest

import escrowmq
from escrowmq.client.core.message import ReceivedMessage, to_received_message
from escrowmq.client.core.queue_choice import queue_of_key
from escrowmq.codec.recall_handle import RecallHandle, encode_recall_handle
from escrowmq.codec.record import decode_record
from escrowmq.errors import MessageRefused, NoNameServer, ReplyTimeout, TopicNotFound
from tests.interop import wire
from tests.interop.drivers import unique
from tests.interop.process import until
from tests.interop.servers import Server

from .conftest import new_topic
from .reading import bodies, delivered, wait_bodies, wait_delivered


@pytest.fixture
def producer(server: Server, group: str) -> Any:
    with escrowmq.Producer(server.nameserver, group=group) as opened:
        yield opened


def test_what_was_sent_is_what_consumers_get(
    server: Server, topic: str, producer: escrowmq.Producer
) -> None:
    sent = producer.send(
        topic, b"body", tag="card", keys=["k1", "k2"], properties={"colour": "blue"}, flag=7
    )
    assert sent.status is escrowmq.SendStatus.OK
    (found,) = wait_delivered(server, topic, 1)
    assert (found.body, found.tag, found.keys, found.properties, found.flag) == (
        b"body",
        "card",
        ["k1", "k2"],
        {"colour": "blue"},
        7,
    )
    assert (found.message_id, found.offset_id) == (sent.message_id, sent.offset_id)
    assert (found.queue_id, found.queue_offset) == (sent.queue.queue_id, sent.offset)


@pytest.mark.parametrize("form", ["zlib", "lz4", "zstd", ""])
def test_large_bodies_arrive_whole_in_every_compression(
    server: Server, topic: str, group: str, form: str
) -> None:
    body = bytes(range(256)) * 400
    with escrowmq.Producer(server.nameserver, group=group, compression=form) as producer:
        producer.send(topic, body)
    (found,) = wait_delivered(server, topic, 1)
    assert found.body == body


def test_one_order_key_means_one_queue_and_the_order_of_sending(
    server: Server, topic: str, producer: escrowmq.Producer
) -> None:
    queues = {producer.send(topic, b"%03d" % n, order_key="customer").queue for n in range(20)}
    assert len(queues) == 1
    found = wait_delivered(server, topic, 20)
    assert [message.body for message in found] == [b"%03d" % n for n in range(20)]
    assert {message.order_key for message in found} == {"customer"}
    every = [escrowmq.MessageQueue(topic, server.broker_name, queue_id) for queue_id in range(4)]
    assert queues == {queue_of_key(every, "customer")}


def test_many_messages_go_in_one_request(
    server: Server, topic: str, producer: escrowmq.Producer
) -> None:
    messages = [escrowmq.Message(topic, b"%03d" % n, tag=f"t{n}") for n in range(50)]
    results = producer.send_many(messages)
    found = {message.body: message for message in wait_delivered(server, topic, 50)}
    assert sorted(found) == [b"%03d" % n for n in range(50)]
    for n, result in enumerate(results):
        message = found[b"%03d" % n]
        assert (message.queue_id, message.queue_offset) == (result.queue.queue_id, result.offset)
        assert message.tag == f"t{n}"
        assert (message.message_id, message.offset_id) == (result.message_id, result.offset_id)


def test_all_messages_of_a_batch_of_thousands_are_named_in_its_reply(
    server: Server, topic: str, producer: escrowmq.Producer
) -> None:
    count = 12_000
    results = producer.send_many([escrowmq.Message(topic, b"%05d" % n) for n in range(count)])
    first = results[0]
    assert [result.offset for result in results] == list(range(first.offset, first.offset + count))
    assert len({result.offset_id for result in results}) == count


def test_one_way_messages_arrive(server: Server, topic: str, producer: escrowmq.Producer) -> None:
    for n in range(10):
        producer.send_one_way(topic, b"%03d" % n)
    wait_bodies(server, topic, [b"%03d" % n for n in range(10)])


def test_a_new_topic_comes_with_its_first_message(
    server: Server, producer: escrowmq.Producer
) -> None:
    name = unique("Auto")
    producer.send(name, b"first")
    wait_bodies(server, name, [b"first"])


def test_delayed_messages_come_later_and_can_be_recalled(
    server: Server, topic: str, producer: escrowmq.Producer
) -> None:
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=2)
    producer.send(topic, b"level", delay_level=1)
    producer.send(topic, b"delay", delay=dt.timedelta(seconds=2))
    producer.send(topic, b"at", deliver_at=soon)
    recalled = producer.send(topic, b"recalled", delay=6)
    assert bodies(server, topic) == []
    assert producer.recall(topic, recalled.recall_handle)
    producer.send(topic, b"marker", delay=8)
    wait_bodies(server, topic, [b"at", b"delay", b"level", b"marker"])


def test_threads_share_a_producer(server: Server, topic: str, producer: escrowmq.Producer) -> None:
    def work(number: int) -> None:
        for n in range(25):
            producer.send(topic, b"%d-%d" % (number, n))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    expected = sorted(b"%d-%d" % (number, n) for number in range(8) for n in range(25))
    wait_bodies(server, topic, expected)


def test_the_asyncio_face_does_the_same(server: Server, topic: str, group: str) -> None:
    async def go() -> list[escrowmq.SendResult]:
        async with escrowmq.aio.Producer(server.nameserver, group=group) as producer:
            one = await producer.send(topic, b"one", keys="k")
            more = await producer.send_many([escrowmq.Message(topic, b"two")])
            async with producer.transaction(topic, b"three") as tx:
                pass
            rest = await asyncio.gather(*(producer.send(topic, b"x%d" % n) for n in range(40)))
            return [one, *more, *tx.results, *rest]

    results = asyncio.run(go())
    assert len({result.message_id for result in results}) == 43
    expected = [b"one", b"two", b"three", *(b"x%d" % n for n in range(40))]
    wait_bodies(server, topic, expected)


def test_a_request_gets_its_reply(server: Server, topic: str, group: str) -> None:
    with (
        escrowmq.Producer(server.nameserver, group=group) as asker,
        escrowmq.Producer(server.nameserver, group=group + "-answers") as answerer,
    ):
        done = threading.Event()

        def answer() -> None:
            def request() -> ReceivedMessage | None:
                return next(iter(delivered(server, topic)), None)

            answerer.reply(until("the request", request), b"42")
            done.set()

        thread = threading.Thread(target=answer)
        thread.start()
        found = asker.request(topic, b"6*7", timeout_ms=30_000)
        thread.join(30)
        assert found.body == b"42"
        assert done.is_set()
        with pytest.raises(ReplyTimeout, match="no one replied"):
            asker.request(topic, b"7*7", timeout_ms=300)


def test_what_the_broker_refuses_has_a_name(server: Server, topic: str, group: str) -> None:
    with (
        escrowmq.Producer(
            server.nameserver, group=group, body_size_max=10**7, compression=""
        ) as producer,
        pytest.raises(MessageRefused, match="msg body length limit"),
    ):
        producer.send(topic, b"x" * (4 * 1024 * 1024 + 1), timeout_ms=20_000)


def test_a_topic_that_is_not_there_and_no_name_server_are_two_things(
    server: Server, producer: escrowmq.Producer, group: str
) -> None:
    handle = encode_recall_handle(
        RecallHandle(topic="T", broker_name=server.broker_name, deliver_ms=1, unique_key="k")
    )
    with pytest.raises(TopicNotFound):
        producer.recall(unique("Nothing"), handle)
    with escrowmq.Producer("127.0.0.1:1", group=group) as lonely, pytest.raises(NoNameServer):
        lonely.send("T", b"x")


def test_the_stored_copy_is_found_by_its_id(server: Server, group: str, peer: str) -> None:
    topic = new_topic(server, queues=1)
    with escrowmq.Producer(server.nameserver, group=group) as producer:
        sent = producer.send(topic, b"x")
    reply = wire.ask(server.broker, 33, {"offset": str(int(sent.offset_id[-16:], 16))})
    assert to_received_message(decode_record(reply.body)).message_id == sent.message_id
