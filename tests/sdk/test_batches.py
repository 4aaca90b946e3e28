"""Loops over batches of messages, at a real broker and in both faces."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import escrowmq
import escrowmq.aio
from escrowmq.client.portal import Portal
from escrowmq.testing import Broker
from tests.interop.servers import Server

FAST: dict[str, Any] = {"commit_interval_ms": 200, "rebalance_interval_ms": 1_000}
COUNT = 200


def fill(server: Server, topic: str, group: str) -> list[bytes]:
    bodies = [b"%03d" % n for n in range(COUNT)]
    with escrowmq.Producer(server.nameserver, group=group) as producer:
        for body in bodies:
            producer.send(topic, body)
    return bodies


def test_batches_have_messages_of_all_queues_and_each_comes_once(
    server: Server, topic: str, group: str
) -> None:
    wanted = fill(server, topic, group)
    seen: list[bytes] = []
    sizes = []
    with escrowmq.Consumer(server.nameserver, group=group, topic=topic, **FAST) as consumer:
        for batch in consumer.batches(64, within_s=2):
            sizes.append(len(batch))
            seen += [message.body for message in batch]
            if len(seen) >= COUNT:
                break
    assert sorted(seen) == wanted
    assert max(sizes) <= 64
    assert sizes[0] == 64, "more than one queue has filled it"
    with escrowmq.Consumer(server.nameserver, group=group, topic=topic, **FAST) as consumer:
        assert consumer.receive(timeout_s=2) == [], "all of it was acknowledged"


def test_a_batch_whose_handling_failed_comes_again(server: Server, topic: str, group: str) -> None:
    wanted = fill(server, topic, group)
    settings = {"retry_after_s": 1, **FAST}

    async def fail() -> list[bytes]:
        async with escrowmq.aio.Consumer(
            server.nameserver, group=group, topic=topic, **settings
        ) as consumer:
            async for batch in consumer.batches(50, within_s=2):
                failed.extend(message.body for message in batch)
                raise KeyError("planted")
        raise AssertionError("the loop has failed")

    async def rest() -> set[bytes]:
        seen: set[bytes] = set()
        async with escrowmq.aio.Consumer(
            server.nameserver, group=group, topic=topic, **settings
        ) as consumer:
            async for batch in consumer.batches(50, within_s=0.5):
                seen |= {message.body for message in batch}
                if len(seen) >= COUNT:
                    break
        return seen

    failed: list[bytes] = []
    with contextlib.suppress(KeyError):
        asyncio.run(fail())
    assert failed
    assert sorted(asyncio.run(asyncio.wait_for(rest(), 60))) == wanted


@pytest.mark.parametrize("loop", [iter, lambda consumer: consumer.batches()])
def test_a_loop_ends_if_another_thread_closes_the_consumer_as_messages_come(
    escrowmq_broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    loop: Callable[[escrowmq.Consumer], Iterator[Any]],
) -> None:
    """It raised ValueError: the messages were already put back."""
    escrowmq_broker.send("T", b"1")
    with escrowmq.Consumer(group="g", topic="T") as consumer:
        call = Portal.call

        def call_then_close(self: Portal, work: Any, *given: Any, **more: Any) -> Any:
            found = call(self, work, *given, **more)
            if found is True:
                monkeypatch.undo()
                consumer.close()
            return found

        monkeypatch.setattr(Portal, "call", call_then_close)
        assert list(loop(consumer)) == []
