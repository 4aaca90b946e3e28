"""Producers that let messages linger, at a real broker."""

import asyncio
import concurrent.futures

import escrowmq
import escrowmq.aio
from tests.interop.servers import Server

from .reading import wait_delivered

COUNT = 300


def test_each_of_many_callers_hears_where_its_own_message_is(
    server: Server, topic: str, group: str
) -> None:
    with (
        escrowmq.Producer(server.nameserver, group=group, linger_ms=20) as producer,
        concurrent.futures.ThreadPoolExecutor(30) as pool,
    ):
        results = list(
            pool.map(
                lambda n: producer.send(topic, b"%03d" % n, tag=f"t{n}", keys=[f"k{n}"]),
                range(COUNT),
            )
        )
    found = {message.body: message for message in wait_delivered(server, topic, COUNT)}
    assert sorted(found) == [b"%03d" % n for n in range(COUNT)]
    for n, result in enumerate(results):
        message = found[b"%03d" % n]
        assert (message.tag, message.keys) == (f"t{n}", [f"k{n}"])
        assert (message.queue_id, message.queue_offset) == (result.queue.queue_id, result.offset)
        assert (message.message_id, message.offset_id) == (result.message_id, result.offset_id)


def test_messages_of_a_key_keep_their_order_whatever_goes_alone(
    server: Server, topic: str, group: str
) -> None:
    bodies = [b"%03d" % n + b"x" * (9_000 if n % 7 == 0 else 0) for n in range(COUNT)]

    async def send() -> list[escrowmq.SendResult]:
        async with escrowmq.aio.Producer(
            server.nameserver, group=group, linger_ms=2, batch_size=2_000
        ) as producer:
            tasks = [
                asyncio.create_task(producer.send(topic, body, order_key="one")) for body in bodies
            ]
            return await asyncio.gather(*tasks)

    results = asyncio.run(send())
    assert len({result.queue for result in results}) == 1
    offsets = [result.offset for result in results]
    assert offsets == sorted(offsets)
    found = sorted(wait_delivered(server, topic, COUNT), key=lambda each: each.queue_offset)
    assert [message.body for message in found] == bodies
